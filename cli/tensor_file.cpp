// A snapshot or a safetensors file as named tensors.
#include "cli/tensor_file.hpp"

#include <memory>
#include <utility>

#include <bitsnap/safetensors.hpp>

#include "cli/command.hpp"
#include "cli/run_path.hpp"

namespace bitsnap::cli {

Result<TensorFile> TensorFile::open(const std::string& path, const OpenOptions& options) {
  BITSNAP_TRY(check_no_run(path));
  BITSNAP_ASSIGN(auto kind, detect_file_kind(path));
  if (kind == FileKind::safetensors) {
    TensorFile file;
    BITSNAP_ASSIGN(auto opened, open_safetensors(path, options.limits));
    auto state = std::make_shared<const State>(std::move(opened));
    for (const TensorSource& source : state->tensors) {
      file.tensors_.push_back(source.info);
    }
    file.read_ = [state](std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) {
      return state->tensors[tensor].read(offset, out);
    };
    return file;
  }
  BITSNAP_ASSIGN(auto snapshot, Snapshot::open(path, options));
  return of(std::move(snapshot));
}

TensorFile TensorFile::of(std::shared_ptr<const Snapshot> snapshot) {
  TensorFile file;
  file.tensors_.assign(snapshot->tensors().begin(), snapshot->tensors().end());
  file.read_ = [snapshot](std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) {
    return snapshot->read_bytes(tensor, offset, out);
  };
  file.snapshot_ = std::move(snapshot);
  return file;
}

}  // namespace bitsnap::cli
