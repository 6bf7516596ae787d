#include "cli/input/training_input.hpp"

#include <utility>

#include <fmt/format.h>

#include <bitsnap/folder.hpp>
#include <bitsnap/text.hpp>

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

namespace {

using Shards = std::vector<std::shared_ptr<const Snapshot>>;

Result<Shards> open_shards(const RunPath& run, std::optional<std::uint64_t> shard) {
  BITSNAP_ASSIGN(const OpenCheckpoint first, open_checkpoint(run, shard.value_or(0)));
  Shards shards = {first.snapshot};
  for (std::uint32_t rank = 1; !shard && rank < first.info.shards; ++rank) {
    BITSNAP_ASSIGN(OpenCheckpoint next, open_checkpoint({run.run, first.info.step}, rank));
    shards.push_back(std::move(next.snapshot));
  }
  return shards;
}

}  // namespace

Result<TrainingInput> open_training(const std::string& path, const std::vector<std::string>& bases,
                                    std::optional<std::uint64_t> shard) {
  BITSNAP_ASSIGN(const std::optional<RunPath> run, find_run(path));
  TrainingInput opened;
  std::optional<FolderState> input;
  if (run) {
    BITSNAP_ASSIGN(opened.snapshots, open_shards(*run, shard));
  } else {
    BITSNAP_ASSIGN(input, find_input(path));
    if (!input) {
      BITSNAP_ASSIGN(auto snapshot, Snapshot::open(path, {.base_paths = bases}));
      opened.snapshots.push_back(std::move(snapshot));
    }
  }
  auto training = input ? training_state(*std::move(input)) : training_state(opened.snapshots);
  if (!training) return tl::unexpected(std::move(training).error().within(path));
  opened.training = *std::move(training);
  if (opened.training.state.tensors.empty() && !opened.training.state.tree) {
    const std::vector<std::string>& left_out = opened.training.left_out;
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: holds no tensors that can be read{}", path,
                            left_out.empty() ? "" : fmt::format("; it has {}", printable(left_out.front()))));
  }
  return opened;
}

}  // namespace bitsnap::cli
