// Creating a store, opening it, and the first part of every writing call: the turn, the lock, and what is known.
#include <algorithm>
#include <chrono>
#include <ranges>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "os/atomic_file.hpp"
#include "os/clock.hpp"
#include "os/random.hpp"
#include "store/kept_bases.hpp"
#include "store/missing_store.hpp"
#include "store/run_marker.hpp"
#include "store/store_impl.hpp"

namespace bitsnap {
namespace {

constexpr std::uint64_t kLockPollMs = 20;
constexpr std::uint64_t kRankWaitMs = 2000;

std::string random_run_id() { return SnapshotId{os::random_u64(), os::random_u64()}.to_hex(); }

Error lost_run_record(const store::RunLayout& layout) {
  return Error(ErrorKind::not_found,
               fmt::format("{}: {} is missing; repair the store to rebuild it", layout.root(), store::kRunRecordName));
}

// The settings of a handle: its options over the store's. A loss rule in both is not repeated; if the store was created
// with these options, that is every rule.
CodingSettings settings_of(const StoreOptions& options, const CodingSettings& remembered) {
  CodingSettings settings = merge_settings(options.settings, merge_settings(remembered, default_settings()));
  std::vector<LossRule> rules = options.first_loss;
  for (LossRule& rule : settings.loss.value_or(std::vector<LossRule>())) {
    if (std::ranges::find(rules, rule) == rules.end()) rules.push_back(std::move(rule));
  }
  settings.loss = std::move(rules);
  return settings;
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

os::AccessPattern pattern_of(const StoreOptions& options) {
  return options.loads_bases ? os::AccessPattern::repeated : os::AccessPattern::random;
}

}  // namespace

Store::Impl::Impl(os::FileSystem& file_system, const std::string& path, const StoreOptions& options,
                  std::shared_ptr<store::BaseCache> cache)
    : layout_(without_slashes(path)),
      all_files_(file_system),
      own_files_(file_system.without_links(layout_.root())),
      file_system_(*own_files_),
      options_(options),
      reader_(std::make_shared<store::CheckpointReader>(file_system_, layout_, options.limits, nullptr,
                                                        pattern_of(options))),
      directories_(file_system_, layout_),
      tensors_(directories_, *reader_, options.limits),
      labels_(directories_),
      known_(directories_),
      cache_(cache != nullptr ? std::move(cache)
                              : std::make_shared<store::BaseCache>(
                                    store::BaseCache::Limits{.decoded_bytes = options.keep_base_bytes})) {}

Store::Impl::~Impl() {
  if (is_new_ && was_missed_) withdraw();
  if (!hands_base_over_as_) return;
  static_cast<void>(no_throw("store", [&]() -> Result<void> {
    store::hand_over_base(*hands_base_over_as_, std::move(cache_));
    return {};
  }));
}

Result<std::unique_ptr<Store::Impl>> Store::Impl::open(os::FileSystem& file_system, const std::string& path,
                                                       const StoreOptions& options,
                                                       std::shared_ptr<store::BaseCache> cache) {
  if (path.empty()) return fail(ErrorKind::invalid_argument, "the path of the store must not be empty");
  BITSNAP_TRY(check_settings(options.settings));
  BITSNAP_TRY(check_retention(options.retention));
  const bool is_own_cache = cache == nullptr;
  std::unique_ptr<Impl> impl(new Impl(file_system, path, options, std::move(cache)));
  BITSNAP_ASSIGN(os::FileInfo record, impl->file_system_.stat(impl->layout_.run_record()));
  const bool writes = options.access != StoreAccess::read;
  if (!record.exists && (!writes || !options.create)) {
    BITSNAP_ASSIGN(const os::FileInfo checkpoints, impl->file_system_.stat(impl->layout_.checkpoints()));
    // A store that is being created has no checkpoint: the run record is written last, and before the first checkpoint.
    // Then the record is read again.
    bool has_some = false;
    if (checkpoints.is_directory) {
      BITSNAP_ASSIGN(has_some, impl->has_checkpoints());
    }
    BITSNAP_ASSIGN(record, impl->file_system_.stat(impl->layout_.run_record()));
    if (!record.exists) {
      if (has_some) return tl::unexpected(lost_run_record(impl->layout_));
      if (!checkpoints.is_directory) return tl::unexpected(store::no_store_error(file_system, impl->layout_.root()));
      return fail(ErrorKind::not_found,
                  fmt::format("{}: no store found; it is still being created", impl->layout_.root()));
    }
  }
  if (!record.exists) {
    BITSNAP_TRY(impl->create_run());
  } else if (writes) {
    // The creator of the store may have been killed before it synced the names.
    BITSNAP_TRY(impl->directories_.sync(impl->layout_.root()));
  }
  auto run = store::read_run_record(impl->file_system_, impl->layout_.run_record());
  if (!run) {
    BITSNAP_TRY(impl->check_is_no_reference());
    return tl::unexpected(std::move(run).error());
  }
  impl->run_ = *std::move(run);
  const std::string above = os::parent_directory(impl->layout_.root());
  if (writes && impl->run_.origin && os::file_name(above) == store::kBranchesName) {
    // The process that made the branch may have been killed before it synced the name.
    BITSNAP_TRY(impl->directories_.sync(above));
  }
  impl->settings_ = settings_of(options, impl->run_.settings);
  if (is_own_cache && writes) {
    impl->hands_base_over_as_ = {&file_system, impl->run_.id};
    if (std::shared_ptr<store::BaseCache> earlier = store::take_over_base(*impl->hands_base_over_as_)) {
      earlier->set_limits(impl->cache_->limits());
      impl->cache_ = std::move(earlier);
    }
  }
  if (options.access == StoreAccess::write) {
    if (impl->lock_ == nullptr) {
      BITSNAP_ASSIGN(store::WriteGuard guard, impl->begin_writing(os::LockKind::exclusive));
      impl->lock_ = std::move(guard.lock);
    }
    BITSNAP_TRY(impl->settle());
  }
  return impl;
}

Result<void> Store::Impl::check_is_no_reference() const {
  BITSNAP_ASSIGN(const store::RunMarker marker, store::find_marker(file_system_, layout_));
  if (marker != store::RunMarker::reference) return {};
  return fail(ErrorKind::invalid_argument,
              fmt::format("{}: is no store: its file {} is a reference, which names the run and the step that hold the "
                          "checkpoint of this folder",
                          layout_.root(), store::kRunRecordName));
}

// The run record goes first: what a crash leaves is then an unfinished store. Something else in a directory keeps it.
void Store::Impl::withdraw() const {
  if (lock_ == nullptr || !lock_->is_held() || !file_system_.has_lasting_locks()) return;
  const auto names = file_system_.list_directory(layout_.root());
  const auto inside = file_system_.list_directory(layout_.checkpoints());
  if (!names || !inside || !inside->empty()) return;
  const auto is_own = [](const std::string& name) {
    return name == store::kRunRecordName || name == store::kCheckpointsName || name == store::kLockName;
  };
  if (!std::ranges::all_of(*names, is_own)) return;
  for (const std::string& path : {layout_.run_record(), layout_.checkpoints(), layout_.lock(), layout_.root()}) {
    if (!all_files_.remove(path)) return;
  }
}

// Retired and damaged checkpoints count, too.
Result<bool> Store::Impl::has_checkpoints() const {
  BITSNAP_ASSIGN(const std::vector<store::StepEntry> steps, directories_.list());
  return std::ranges::any_of(steps, [](const auto& step) { return step.state != store::StepState::uncommitted; });
}

Result<void> Store::Impl::create_run() {
  BITSNAP_TRY(store::check_new_store_name(all_files_, layout_.root()));
  Result<void> created = file_system_.create_directory(layout_.root());
  if (!created) {
    BITSNAP_ASSIGN(const os::FileInfo info, file_system_.stat(layout_.root()));
    if (info.exists && !info.is_directory) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{}: is a file, not the directory of a store", layout_.root()));
    }
    if (!info.exists && created.error().kind() == ErrorKind::not_found) {
      return fail(ErrorKind::not_found,
                  fmt::format("{}: the directory {} does not exist; a store is made in one that does", layout_.root(),
                              os::parent_directory(layout_.root())));
    }
    if (!info.exists) return created;
  }
  BITSNAP_ASSIGN(const std::vector<std::string> names, file_system_.list_directory(layout_.root()));
  if (!store::is_unfinished_store(names) && std::ranges::find(names, store::kRunRecordName) == names.end()) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: is no store, and none can be made there: {}; choose an empty or new directory",
                            layout_.root(), store::describe_no_store(all_files_, layout_.root())));
  }
  BITSNAP_ASSIGN(store::WriteGuard guard, begin_writing(os::LockKind::exclusive));
  // Another process may have created the store while this one waited for the lock.
  BITSNAP_ASSIGN(const os::FileInfo record, file_system_.stat(layout_.run_record()));
  if (!record.exists) {
    Result<void> made = file_system_.create_directory(layout_.checkpoints());
    if (!made && made.error().kind() != ErrorKind::invalid_argument) return made;
    // An interrupted creation leaves no checkpoints. A store with checkpoints once had an id and a policy, so it needs
    // a repair.
    BITSNAP_ASSIGN(const bool has_some, has_checkpoints());
    if (has_some) return tl::unexpected(lost_run_record(layout_));
    // Makes the store itself survive a crash. If the directory above is unreadable, it cannot be synced.
    const std::string above = os::parent_directory(layout_.root());
    if (const auto synced = file_system_.sync_directory(above); synced) {
      directories_.note_sync(*synced == os::DirectorySync::done);
    } else if (file_system_.list_directory(above)) {
      return tl::unexpected(synced.error());
    }
    // The run record makes the directory a store. After a crash, it must not be there without the checkpoints
    // directory.
    BITSNAP_TRY(directories_.sync(layout_.root()));
    store::RunRecord run;
    run.id = random_run_id();
    run.settings = merge_settings(options_.settings, default_settings());
    std::vector<LossRule> rules = options_.first_loss;
    if (run.settings.loss) rules.insert(rules.end(), run.settings.loss->begin(), run.settings.loss->end());
    run.settings.loss.reset();
    if (!rules.empty()) run.settings.loss = std::move(rules);
    if (run.settings.store_speed == 0) run.settings.store_speed.reset();
    BITSNAP_ASSIGN(const bool synced, store::write_run_record(file_system_, layout_.run_record(), run, false));
    directories_.note_sync(synced);
    is_new_ = true;
  } else {
    BITSNAP_TRY(directories_.sync(layout_.root()));
  }
  if (options_.access == StoreAccess::write) lock_ = std::move(guard.lock);
  return {};
}

Result<store::WriteGuard> Store::Impl::begin_writing(os::LockKind kind) {
  if (options_.access == StoreAccess::read) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: the store was opened read-only; open it without that to change it", layout_.root()));
  }
  store::WriteGuard guard;
  BITSNAP_ASSIGN(guard.turn, turn_.take(options_.interrupted));
  if (broken_) return tl::unexpected(*broken_);
  if (lock_ != nullptr) {
    // If somebody removed or replaced the lock file, another writer can take the lock.
    if (file_system_.has_lasting_locks()) {
      BITSNAP_ASSIGN(const os::FileInfo file, file_system_.stat(layout_.lock()));
      if (!file.exists || file.file_id != lock_file_id_) {
        return fail(ErrorKind::busy,
                    fmt::format("{}: the lock file was removed or replaced; open the store again", layout_.root()));
      }
    } else if (!lock_->is_held()) {
      return fail(ErrorKind::busy, fmt::format("{}: the lease was lost: this process did not reach the service in "
                                               "time, or was forked; open the store again",
                                               layout_.root()));
    }
    if (!lock_->is_held()) {
      return fail(ErrorKind::busy, fmt::format("{}: locked by the process that this process was forked from; open the "
                                               "store again after that process has closed it",
                                               layout_.root()));
    }
    if (!is_settled_) BITSNAP_TRY(settle_again());
    return guard;
  }
  if (!is_settled_) kind = os::LockKind::exclusive;
  const std::uint64_t start = os::monotonic_ns();
  // A rank creates the store, labels and prunes alone; what it writes may be seen before it lets the lock go.
  const std::uint64_t wait_ms =
      options_.access == StoreAccess::shared ? std::max(options_.timeout_ms, kRankWaitMs) : options_.timeout_ms;
  for (;;) {
    auto lock = file_system_.lock(layout_.lock(), kind);
    if (lock) {
      guard.lock = std::move(*lock);
      if (file_system_.has_lasting_locks()) {
        BITSNAP_ASSIGN(const os::FileInfo file, file_system_.stat(layout_.lock()));
        lock_file_id_ = file.file_id;
      }
      break;
    }
    const std::uint64_t waited_ms = (os::monotonic_ns() - start) / 1'000'000;
    if (lock.error().kind() != ErrorKind::busy) return tl::unexpected(std::move(lock).error());
    if (waited_ms >= wait_ms && file_system_.doubt_ms(layout_.lock()) == 0) {
      return tl::unexpected(std::move(lock).error());
    }
    if (options_.interrupted && options_.interrupted()) {
      return fail(ErrorKind::cancelled, fmt::format("{}: interrupted while waiting for the lock", layout_.root()));
    }
    const std::uint64_t left_ms = wait_ms > waited_ms ? wait_ms - waited_ms : kLockPollMs;
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(kLockPollMs, left_ms)));
  }
  // Another writer may have changed the store since, or may have been killed during a change.
  known_.forget();
  BITSNAP_TRY(directories_.settle_set_aside());
  if (!is_settled_) BITSNAP_TRY(settle_again());
  return guard;
}

}  // namespace bitsnap
