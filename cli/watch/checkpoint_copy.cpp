#include "cli/watch/checkpoint_copy.hpp"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>

#include <bitsnap/snapshot.hpp>

#include "cli/input/checkpoint_input.hpp"
#include "cli/input/references.hpp"
#include "src/base/try.hpp"

namespace bitsnap::cli {

namespace {

Result<State> state_of(const std::shared_ptr<const Snapshot>& snapshot) {
  State state;
  for (std::size_t i = 0; i < snapshot->tensors().size(); ++i) {
    TensorSource source;
    source.info = snapshot->tensors()[i];
    source.read = [snapshot, i](std::uint64_t offset, std::span<std::byte> out) {
      return snapshot->read_bytes(i, offset, out);
    };
    state.tensors.push_back(std::move(source));
  }
  BITSNAP_ASSIGN(state.tree, snapshot->tree());
  state.metadata = without_saved_path(snapshot->metadata());
  state.safetensors_header = snapshot->safetensors_header();
  return state;
}

std::string new_attempt() {
  std::random_device random;
  return fmt::format("copy-{:08x}{:08x}", random(), random());
}

Result<CheckpointInfo> save_one(Store& store, const CopySource& source, std::uint64_t step, const RunOptions& run,
                                const std::vector<std::string>& labels) {
  const auto check = [&](const Snapshot& written) {
    return check_decodes(written, run.threads).map_error([&](const Error& error) {
      return Error(error).within(written.name() + ": it was not written as it was read");
    });
  };
  return store.save(step, source.shards.front(), run, check, {.labels = labels, .files = source.files});
}

Result<CheckpointInfo> save_several(Store& store, const CopySource& source, std::uint64_t step, const RunOptions& run,
                                    const std::vector<std::string>& labels) {
  const auto count = static_cast<std::uint32_t>(source.shards.size());
  const std::string attempt = new_attempt();
  for (std::uint32_t shard = 0; shard < count; ++shard) {
    BITSNAP_TRY(store.save_shard(step, {shard, count, attempt}, source.shards[shard], run));
  }
  BITSNAP_ASSIGN(
      CommitOutcome outcome,
      store.commit(step, count, attempt,
                   {.labels = labels, .metadata = without_saved_path(source.info.metadata), .files = source.files}));
  if (!outcome) return fail(ErrorKind::io, fmt::format("{}: shards of step {} are missing", store.path(), step));
  BITSNAP_ASSIGN(const StoreVerification verified, store.verify({.steps = {step}, .run = {run.threads, nullptr}}));
  if (!verified.damages.empty()) return tl::unexpected(verified.damages.front().error);
  return *std::move(outcome.checkpoint);
}

}  // namespace

Result<CopySource> open_copy(const RunPath& from) {
  BITSNAP_ASSIGN(const auto store, open_to_read(from.run));
  CopySource source{from, {}, {}, {}};
  BITSNAP_ASSIGN(source.info, store->info(*from.step));
  if (source.info.damage) return tl::unexpected(*source.info.damage);
  for (std::uint32_t shard = 0; shard < source.info.shards; ++shard) {
    BITSNAP_ASSIGN(const auto snapshot, store->snapshot(from.step, shard));
    BITSNAP_ASSIGN(State state, state_of(snapshot));
    source.shards.push_back(std::move(state));
  }
  BITSNAP_ASSIGN(source.files, store->files(*from.step));
  return source;
}

Result<SavedCheckpoint> save_copy(Store& store, const CopySource& source, const std::string& path, std::uint64_t step,
                                  const CommonOptions& common, const std::vector<std::string>& labels) {
  return save_measured(store, path, source.info.raw_bytes, common, [&](const RunOptions& run) {
    return source.shards.size() == 1 ? save_one(store, source, step, run, labels)
                                     : save_several(store, source, step, run, labels);
  });
}

}  // namespace bitsnap::cli
