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
  BITSNAP_ASSIGN(auto snapshot, open_snapshot(path, options));
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

Result<TrainingState> state_of(WholeCheckpoint checkpoint) {
  if (checkpoint.tensors == nullptr) return training_state(std::move(checkpoint.snapshots));
  return training_state(std::move(checkpoint.snapshots), *checkpoint.tensors);
}

}  // namespace

Result<WholeCheckpoint> open_whole(const RunPath& run, std::optional<std::uint64_t> shard) {
  BITSNAP_ASSIGN(OpenCheckpoint first, open_checkpoint(run, shard.value_or(0)));
  const std::uint64_t step = first.info.step;
  WholeCheckpoint whole{{std::move(first.info), {std::move(first.snapshot)}, nullptr}, run.run};
  if (shard || whole.info.shards == 1) return whole;
  BITSNAP_ASSIGN(const auto store, open_to_read(run.run));
  BITSNAP_ASSIGN(OpenedShards opened, open_all_shards(*store, step));
  return WholeCheckpoint{std::move(opened), run.run};
}

Result<TrainingInput> open_training(const std::string& path, const std::vector<std::string>& bases,
                                    std::optional<std::uint64_t> shard) {
  BITSNAP_ASSIGN(const std::optional<RunPath> run, find_run_or_file(path));
  TrainingInput opened;
  std::optional<FolderState> input;
  WholeCheckpoint checkpoint;
  if (run) {
    BITSNAP_ASSIGN(checkpoint, open_whole(*run, shard));
  } else {
    BITSNAP_ASSIGN(input, find_input(path));
    if (!input) {
      BITSNAP_ASSIGN(auto snapshot, open_snapshot(path, {.base_paths = bases}));
      checkpoint.snapshots.push_back(std::move(snapshot));
    }
  }
  opened.snapshots = checkpoint.snapshots;
  auto training = input ? training_state(*std::move(input)) : state_of(std::move(checkpoint));
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
