// A snapshot, or what a training wrote, as named tensors.
#include "cli/input/tensor_file.hpp"

#include <optional>
#include <utility>

#include <bitsnap/folder.hpp>

#include "cli/command.hpp"
#include "cli/input/checkpoint_input.hpp"
#include "cli/input/run_path.hpp"

namespace bitsnap::cli {

Result<TensorFile> open_tensors(const std::string& path, const OpenOptions& options) {
  BITSNAP_TRY(check_no_run(path));
  BITSNAP_ASSIGN(std::optional<FolderState> input, find_input(path, options.limits));
  if (input) return tensors_of(std::move(input->state));
  BITSNAP_ASSIGN(auto snapshot, Snapshot::open(path, options));
  return tensors_of(std::move(snapshot));
}

TensorFile tensors_of(State state) {
  const auto held = std::make_shared<const State>(std::move(state));
  TensorFile file;
  for (const TensorSource& source : held->tensors) file.tensors.push_back(source.info);
  file.read = [held](std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) {
    return held->tensors[tensor].read(offset, out);
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
