#include "cli/training_input.hpp"

#include <memory>
#include <utility>

#include "cli/checkpoint_input.hpp"
#include "cli/command.hpp"
#include "cli/run_path.hpp"

namespace bitsnap::cli {

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

Result<TrainingState> open_training(const std::string& path, const std::vector<std::string>& bases,
                                    std::optional<std::uint64_t> shard) {
  BITSNAP_ASSIGN(const std::optional<RunPath> run, find_run(path));
  if (run) {
    BITSNAP_ASSIGN(Shards shards, open_shards(*run, shard));
    return training_state(std::move(shards));
  }
  BITSNAP_ASSIGN(std::optional<FolderState> input, find_input(path));
  if (input) return training_state(*std::move(input));
  OpenOptions open;
  open.base_paths = bases;
  BITSNAP_ASSIGN(auto snapshot, Snapshot::open(path, open));
  return training_state(Shards{std::move(snapshot)});
}

}  // namespace bitsnap::cli
