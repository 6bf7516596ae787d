// A snapshot or a safetensors file as named tensors.
#include "cli/tensor_file.hpp"

#include <utility>

#include <bitsnap/safetensors.hpp>

#include "cli/command.hpp"
#include "cli/run_path.hpp"

namespace bitsnap::cli {

Result<TensorFile> open_tensors(const std::string& path, const OpenOptions& options) {
  BITSNAP_TRY(check_no_run(path));
  BITSNAP_ASSIGN(auto kind, detect_file_kind(path));
  if (kind != FileKind::safetensors) {
    return Snapshot::open(path, options).map(tensors_of);
  }
  BITSNAP_ASSIGN(auto opened, open_safetensors(path, options.limits));
  const auto state = std::make_shared<const State>(std::move(opened));
  TensorFile file;
  for (const TensorSource& source : state->tensors) {
    file.tensors.push_back(source.info);
  }
  file.read = [state](std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) {
    return state->tensors[tensor].read(offset, out);
  };
  return file;
}

TensorFile tensors_of(std::shared_ptr<const Snapshot> snapshot) {
  TensorFile file;
  file.tensors.assign(snapshot->tensors().begin(), snapshot->tensors().end());
  file.read = [snapshot](std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) {
    return snapshot->read_bytes(tensor, offset, out);
  };
  file.snapshot = std::move(snapshot);
  return file;
}

}  // namespace bitsnap::cli
