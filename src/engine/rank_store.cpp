#include "engine/rank_store.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "engine/store_access.hpp"
#include "store/commit_record.hpp"
#include "store/run_layout.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::engine {

void RankStore::set_settings(const WriteSettings& settings) {
  const std::lock_guard lock(mutex_);
  must_reopen_ |= !(settings_ == settings);
  settings_ = settings;
  is_rotated_ = false;
}

void RankStore::set_rotation(std::optional<std::uint64_t> keep_last) {
  const std::lock_guard lock(mutex_);
  const Retention retention{.keep_last = keep_last};
  must_reopen_ |= !is_rotated_ || !(settings_.retention == retention);
  settings_.retention = retention;
  is_rotated_ = true;
}

void RankStore::note_stale() {
  const std::lock_guard lock(mutex_);
  must_reopen_ = true;
}

Result<std::shared_ptr<Store>> RankStore::open() {
  const std::lock_guard opening(opening_);
  StoreOptions options;
  {
    const std::lock_guard lock(mutex_);
    // A handle that is still in use may hold the store's lock, so that a second one could not open. It stays, and so
    // does `must_reopen_`, for a later call.
    if (store_ != nullptr && (!must_reopen_ || store_.use_count() > 1)) return store_;
    store_.reset();
    must_reopen_ = false;
    options = store_options(settings_, rank_, job_.world_size);
    options.prunes = options.prunes && !is_rotated_;
  }
  options.timeout_ms = kLockWaitMs;
  auto opened = store::open_store(job_.files, job_.store_path, options, cache_);
  if (!opened && opened.error().kind() == ErrorKind::busy) {
    return fail(ErrorKind::busy,
                fmt::format("{}; if that is the agent of another job, give each job a store of its own, or stop it",
                            opened.error().message()));
  }
  BITSNAP_ASSIGN(store_, std::move(opened));
  remember_settings(*store_);
  return store_;
}

void RankStore::remember_settings(const Store& store) {
  const std::lock_guard lock(mutex_);
  remembered_ = store.settings();
}

CodingSettings RankStore::memory_settings() {
  {
    // For settings that the trainer did not give, the store's apply. They are read once, by a reader, which takes no
    // lock, and not while the writer thread opens the store: saves for memory never wait for the store.
    const std::unique_lock opening(opening_, std::try_to_lock);
    bool is_known = false;
    {
      const std::lock_guard lock(mutex_);
      is_known = remembered_.has_value();
    }
    if (opening && !is_known) {
      if (const auto store = store::open_store(job_.files, job_.store_path, {.access = StoreAccess::read}))
        remember_settings(**store);
    }
  }
  const std::lock_guard lock(mutex_);
  return merge_settings(settings_.coding, remembered_.value_or(CodingSettings()));
}

template <typename Use>
Result<void> RankStore::use(const char* what, const Use& use) {
  Result<void> used = no_throw(what, [&]() -> Result<void> {
    BITSNAP_ASSIGN(const std::shared_ptr<Store> store, open());
    return use(*store);
  });
  if (!used) note_stale();
  return used;
}

Result<void> RankStore::prune(std::uint64_t step) {
  return use("pruning", [&](Store& store) -> Result<void> {
    Checkpoint info;
    info.step = step;
    Store::Impl::of(store).apply_retention(info, {.threads = job_.threads});
    if (info.prune_error) return tl::unexpected(*std::move(info.prune_error));
    return {};
  });
}

Result<void> RankStore::remove(const std::set<std::uint64_t>& unneeded) {
  return use("removing", [&](Store& store) -> Result<void> {
    BITSNAP_ASSIGN(std::vector<std::uint64_t> steps, store.steps());
    if (steps.empty()) return {};
    steps.pop_back();  // the newest stays
    std::erase_if(steps, [&](std::uint64_t step) { return !unneeded.contains(step); });
    if (steps.empty()) return {};
    return store.remove(steps, {.run = {.threads = job_.threads}}).map([](const PruneReport&) {});
  });
}

bool RankStore::is_committed(std::uint64_t step, const std::string& attempt, bool retired) const {
  const auto record = store::read_commit_record(job_.files, store::RunLayout(job_.store_path), step, retired);
  return record && record->attempt == attempt;
}

std::optional<Error> RankStore::other_attempt_error(const Store& store, std::uint64_t step, const std::string& attempt,
                                                    Error error) const {
  const store::RunLayout layout(job_.store_path);
  if (const auto steps = store.steps(); steps && !steps->empty()) {
    const std::uint64_t other = std::ranges::binary_search(*steps, step) ? step : steps->back();
    const auto record = store::read_commit_record(job_.files, layout, other);
    if (record && !job_.attempts.is_own(record->attempt)) {
      return Error(
          ErrorKind::invalid_argument,
          fmt::format("{}: another job, or an earlier start of this one, has committed step {} (attempt '{}', this "
                      "is '{}'). Two jobs must not save to one store: give each its own path, or end one of them",
                      job_.store_path, other, record->attempt, attempt));
    }
  }
  for (const bool retired : {false, true}) {
    const auto record = store::read_commit_record(job_.files, layout, step, retired);
    if (record || record.error().kind() != ErrorKind::not_found) return error;
  }
  return std::nullopt;
}

}  // namespace bitsnap::engine
