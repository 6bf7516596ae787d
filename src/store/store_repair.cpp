// Repair: records made again, whole checkpoints freed of damaged ones, and these set aside.
#include <algorithm>
#include <ranges>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "os/random.hpp"
#include "store/record_rebuild.hpp"
#include "store/store_impl.hpp"

namespace bitsnap {
Result<std::unique_ptr<Store::Impl>> Store::Impl::open_for_repair(os::FileSystem& file_system, const std::string& path,
                                                                  bool dry_run) {
  if (path.empty()) return fail(ErrorKind::invalid_argument, "a store needs a path");
  StoreOptions options;
  options.access = dry_run ? StoreAccess::read : StoreAccess::write;
  std::unique_ptr<Impl> impl(new Impl(file_system, path, options));
  BITSNAP_ASSIGN(const os::FileInfo checkpoints, file_system.stat(impl->layout_.checkpoints()));
  BITSNAP_ASSIGN(const os::FileInfo record, file_system.stat(impl->layout_.run_record()));
  BITSNAP_ASSIGN(const os::FileInfo lock, file_system.stat(impl->layout_.lock()));
  if (!checkpoints.is_directory || (!record.exists && !lock.exists)) {
    return fail(ErrorKind::not_found, fmt::format("{}: there is no store", impl->layout_.root()));
  }
  if (!dry_run) {
    BITSNAP_ASSIGN(WriteGuard guard, impl->begin_writing(os::LockKind::exclusive));
    impl->lock_ = std::move(guard.lock);
  }
  return impl;
}

// bitsnap.json, if it is lost, under a new id.
Result<void> Store::Impl::mend_run_record(bool dry_run, RepairReport& report) {
  auto run = store::read_run_record(file_system_, layout_.run_record());
  if (run) {
    run_ = std::move(*run);
    return {};
  }
  if (!store::is_damage(run.error())) return tl::unexpected(std::move(run).error());
  report.mended.push_back(
      {std::nullopt, fmt::format("{} made again ({})", store::kRunRecordName, run.error().message())});
  run_.id = SnapshotId{os::random_u64(), os::random_u64()}.to_hex();
  if (dry_run) return {};
  BITSNAP_ASSIGN(const bool synced, store::write_run_record(file_system_, layout_.run_record(), run_, true));
  directories_.note_sync(synced);
  return {};
}

Result<void> Store::Impl::mend_record(std::uint64_t step, Known& known, bool dry_run, RepairReport& report) {
  const Result<store::CommitRecord>& record = record_of(step, known);
  if (record || !store::is_damage(record.error())) return {};
  const auto find = [&](const SnapshotId& id, std::uint64_t before) -> std::optional<store::StepReference> {
    std::optional<store::StepReference> result;
    for (auto entry = known_.lower_bound(before); entry != known_.begin();) {
      --entry;
      if (entry->second.state == store::StepState::uncommitted) continue;
      const Result<store::CommitRecord>& earlier = record_of(entry->first, entry->second);
      if (!earlier) continue;
      const auto file = std::ranges::find(earlier->shards, id, &store::ShardFile::id);
      if (file == earlier->shards.end()) continue;
      // Of several with that content, coded in different ways, nobody can say which it was: all that it refers to
      // counts.
      if (result) {
        result->standalone = false;
        return result;
      }
      result = store::StepReference{id, entry->first, static_cast<std::uint32_t>(file - earlier->shards.begin()), true};
    }
    return result;
  };
  auto rebuilt = store::rebuild_commit_record(file_system_, layout_, step, find, options_.limits);
  if (!rebuilt) {
    // The record's damage is what is reported; why it could not be made again belongs to it.
    if (!store::is_damage(rebuilt.error())) return tl::unexpected(std::move(rebuilt).error());
    known.record = std::make_shared<const Result<store::CommitRecord>>(
        tl::unexpected(Error(record.error().kind(), fmt::format("{}; it cannot be made again: {}",
                                                                record.error().message(), rebuilt.error().message()))));
    return {};
  }
  report.mended.push_back({step, fmt::format("record made again ({})", record.error().message())});
  if (dry_run) {
    reader_->assume(*rebuilt);
  } else {
    BITSNAP_ASSIGN(const bool synced, store::replace_commit_record(file_system_, layout_, *rebuilt,
                                                                   known.state == store::StepState::retired));
    directories_.note_sync(synced);
  }
  known.record_bytes = store::serialize_commit_record(*rebuilt).size();
  known.record = std::make_shared<const Result<store::CommitRecord>>(std::move(*rebuilt));
  return {};
}

// All damage of all checkpoints, by step.
Result<std::map<std::uint64_t, std::vector<StoreDamage>>> Store::Impl::find_damages(const RunOptions& options) {
  std::map<std::uint64_t, std::vector<StoreDamage>> damages;
  std::vector<const store::CommitRecord*> records;
  for (auto& [step, known] : known_) {
    if (known.state == store::StepState::uncommitted) continue;
    const Result<store::CommitRecord>& record = record_of(step, known);
    if (!record) {
      if (!store::is_damage(record.error())) return tl::unexpected(record.error());
      const std::string_view name = known.state == store::StepState::retired ? store::kRetiredName : store::kCommitName;
      damages[step].push_back({step, store::RunLayout::relative_file(step, name), "", record.error()});
    } else if (known.state == store::StepState::committed) {
      records.push_back(&*record);
    }
  }
  BITSNAP_ASSIGN(std::vector<StoreDamage> found, verify_records(*reader_, records, true, options));
  for (StoreDamage& damage : found) {
    // A file that the system refuses to read may be whole.
    if (!store::is_damage(damage.error)) return tl::unexpected(std::move(damage.error));
    damages[damage.step].push_back(std::move(damage));
  }
  return damages;
}

Result<RepairReport> Store::Impl::repair(const RepairOptions& options) {
  RepairReport report;
  BITSNAP_TRY(mend_run_record(options.dry_run, report));
  if (!options.dry_run) {
    BITSNAP_TRY(directories_.sync(layout_.root()));
    BITSNAP_TRY(directories_.sync_checkpoints());
  }
  BITSNAP_TRY(refresh_known());
  for (auto& [step, known] : known_) {
    if (known.state == store::StepState::uncommitted) {
      // What others refer to was committed once: its record is what is missing.
      if (!is_referred_to(step)) continue;
      known.state = store::StepState::committed;
    }
    BITSNAP_TRY(mend_record(step, known, options.dry_run, report));
  }
  using Damages = std::map<std::uint64_t, std::vector<StoreDamage>>;
  BITSNAP_ASSIGN(Damages damages, find_damages(options.run));

  // What is whole must not need what is not. Nor what was retired and refers to it: such a file can be read only in
  // part, and nobody promised more of it.
  std::set<std::uint64_t> dropped;
  std::vector<std::uint64_t> whole;
  for (auto& [step, known] : known_) {
    if (known.state == store::StepState::uncommitted) continue;
    if (damages.contains(step)) {
      dropped.insert(step);
      continue;
    }
    const store::CommitRecord& record = *record_of(step, known);
    const bool refers = std::ranges::any_of(record.shards, [&](const store::ShardFile& file) {
      return std::ranges::any_of(file.references, [&](const auto& r) { return dropped.contains(r.step); });
    });
    if (known.state == store::StepState::committed) {
      whole.push_back(step);
      ++report.checkpoints;
    } else if (refers) {
      dropped.insert(step);
    }
  }
  if (!options.dry_run && !dropped.empty()) {
    std::vector<PruneReport::Rewritten> rewritten;
    BITSNAP_TRY(rewrite_all(dropped, whole, {options.run.threads, nullptr}, rewritten));
    for (const PruneReport::Rewritten& entry : rewritten) {
      report.mended.push_back({entry.step, "written again without what is damaged"});
    }
  }
  for (auto& [step, found] : std::views::reverse(damages)) {
    RepairReport::Dropped& entry = report.dropped.emplace_back();
    entry.step = step;
    entry.damages = std::move(found);
    entry.moved_to = fmt::format("{}/{}", store::kDamagedName, store::step_name(entry.step));
    if (options.dry_run) continue;
    BITSNAP_ASSIGN(entry.moved_to, directories_.set_aside(entry.step));
    known_.erase(entry.step);
  }
  std::ranges::reverse(report.dropped);
  BITSNAP_ASSIGN(report.strays, remove_strays(options.dry_run));
  return report;
}

namespace store {

Result<RepairReport> repair_store(os::FileSystem& file_system, const std::string& path, const RepairOptions& options) {
  return no_throw("repairing", [&]() -> Result<RepairReport> {
    BITSNAP_ASSIGN(const auto impl, Store::Impl::open_for_repair(file_system, path, options.dry_run));
    return impl->repair(options);
  });
}

}  // namespace store
}  // namespace bitsnap
