#include "engine/trainer_store.hpp"

#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "engine/store_access.hpp"
#include "store/commit_record.hpp"
#include "store/run_layout.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::engine {

Result<std::unique_ptr<Store>> TrainerStore::open() const {
  return store::open_store(files_, options_.path,
                           {.access = StoreAccess::read, .loads_bases = true, .limits = options_.limits});
}

Result<void> TrainerStore::check() const {
  const StoreOptions options = store_options({.coding = options_.settings, .retention = options_.retention},
                                             options_.job.rank, options_.job.world_size);
  const auto check = [&]() -> Result<void> {
    const auto store = store::open_store(files_, options_.path, options);
    // An agent holds the lock of its store while it lives; any other writer may have gone before the first save.
    if (!store && store.error().kind() != ErrorKind::busy) return tl::unexpected(store.error());
    // Every save creates a directory there. A store may be opened without the right.
    return files_.check_writable(store::RunLayout(options_.path).checkpoints());
  };
  auto checked = check();
  // Until the disk has room again, or can be written again, states stay in memory, and each save reports the error.
  if (!checked && is_disk_unwritable(checked.error())) return {};
  return checked;
}

bool TrainerStore::is_new(std::uint64_t step, bool persist) {
  if (!is_known_) {
    const auto steps = open().and_then([](const auto& store) { return store->steps(); });
    is_known_ = steps || steps.error().kind() == ErrorKind::not_found;
    if (steps && !steps->empty()) note_step(steps->back());
  }
  const bool is_new = is_known_ && step >= least_new_step_;
  if (persist) note_step(step);
  return is_new;
}

Result<std::optional<std::string>> TrainerStore::committed_attempt(std::uint64_t step) const {
  const store::RunLayout layout(options_.path);
  auto record = store::read_commit_record(*files_.without_links(layout.root()), layout, step);
  if (record) return std::optional(std::move(record->attempt));
  if (record.error().kind() == ErrorKind::not_found) return std::optional<std::string>();
  return tl::unexpected(std::move(record).error());
}

Result<std::shared_ptr<const Snapshot>> TrainerStore::load(std::uint64_t step) const {
  BITSNAP_ASSIGN(const std::unique_ptr<Store> store, open());
  BITSNAP_ASSIGN(const Checkpoint info, store->checkpoint(step));
  if (info.damage) return tl::unexpected(*info.damage);
  if (info.shards != 1 && info.shards != options_.job.world_size) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{0}: step {1} was saved by {2} ranks, expected 1 or world_size = {3}. Start {2} ranks to "
                            "restore it; or read its {2} shards, from Store.load({1}, shard=0) to Store.load({1}, "
                            "shard={4}), and give each rank its part of the state",
                            options_.path, step, info.shards, options_.job.world_size, info.shards - 1));
  }
  return store->snapshot(step, info.shards == 1 ? 0 : options_.job.rank);
}

}  // namespace bitsnap::engine
