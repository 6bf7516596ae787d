// Verification: every record, every file, and every chunk of every checkpoint.
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/try.hpp"
#include "restore/verify_chunk.hpp"
#include "restore/verify_together.hpp"
#include "store/store_impl.hpp"
#include "store/summed_progress.hpp"

namespace bitsnap {
namespace {

// Number of checkpoints that are verified together: at most a chain, so that the chunks that they share stay in the
// cache.
constexpr std::size_t kTogether = 16;
constexpr int kOpenAgain = 3;
constexpr int kVerifyAgain = 15;  // while the record of a step keeps changing

// Sorts by step. Damages of one step keep the order in which they were found.
void sort_by_step(std::vector<StoreDamage>& damages) {
  std::map<std::uint64_t, std::vector<StoreDamage>> by_step;
  for (StoreDamage& damage : damages) by_step[damage.step].push_back(std::move(damage));
  damages.clear();
  for (auto& [step, found] : by_step) std::ranges::move(found, std::back_inserter(damages));
}

// Appends damages to `damages`. Fails if verification could not continue.
Result<void> verify_window(store::CheckpointReader& reader, std::span<const store::CommitRecord* const> window,
                           bool decode, const RunOptions& options, std::vector<StoreDamage>& damages) {
  std::size_t files = 0;
  std::uint64_t total = 0;
  for (const store::CommitRecord* const record : window) {
    files = std::max(files, record->file_count());
    total += store::raw_bytes(*record);
  }
  store::SummedProgress progress(options.progress, total);
  for (std::size_t number = 0; number < files; ++number) {
    std::vector<std::shared_ptr<const Snapshot>> snapshots;
    std::vector<const store::CommitRecord*> records;
    std::uint64_t bytes = 0;
    const auto note = [&](const store::CommitRecord& record, std::string where, Error error) {
      damages.push_back({record.step, store::RunLayout::relative_file(record.step, record.file(number).file),
                         std::move(where), std::move(error)});
    };
    for (const store::CommitRecord* const record : window) {
      if (number >= record->file_count()) continue;
      const store::ShardFile& file = record->file(number);
      bytes += file.raw_bytes;
      auto snapshot = reader.open_file(record->step, file, !decode);
      // A rewrite may be replacing a file that this one refers to.
      for (int again = 0; again < kOpenAgain && !snapshot && snapshot.error().kind() == ErrorKind::not_found; ++again) {
        snapshot = reader.open_file(record->step, file, !decode);
      }
      if (!snapshot) {
        if (restore::ends_verification(snapshot.error())) return tl::unexpected(std::move(snapshot).error());
        note(*record, "", std::move(snapshot).error());
        continue;
      }
      snapshots.push_back(std::move(*snapshot));
      records.push_back(record);
    }
    const RunOptions run{options.threads, progress.next(bytes)};
    std::vector<std::vector<Damage>> found(snapshots.size());
    if (decode) {
      BITSNAP_ASSIGN(found, restore::verify_together(snapshots, run));
    } else {
      store::SummedProgress each(run.progress, bytes);
      for (std::size_t i = 0; i < snapshots.size(); ++i) {
        BITSNAP_ASSIGN(found[i],
                       snapshots[i]->verify(false, {run.threads, each.next(records[i]->file(number).raw_bytes)}));
      }
    }
    for (std::size_t i = 0; i < snapshots.size(); ++i) {
      for (Damage& damage : found[i]) note(*records[i], std::move(damage.where), std::move(damage.error));
    }
  }
  return {};
}

}  // namespace

Result<std::vector<StoreDamage>> Store::Impl::verify_records(store::CheckpointReader& reader,
                                                             std::span<const store::CommitRecord* const> records,
                                                             bool decode, const RunOptions& options) const {
  std::uint64_t total = 0;
  for (const store::CommitRecord* const record : records) total += store::raw_bytes(*record);
  store::SummedProgress progress(options.progress, total);
  std::vector<StoreDamage> damages;
  for (std::size_t first = 0; first < records.size();) {
    std::size_t end = first + 1;
    std::uint64_t bytes = store::raw_bytes(*records[first]);
    while (end < records.size() && end - first < kTogether && records[end]->links > 0) {
      bytes += store::raw_bytes(*records[end++]);
    }
    BITSNAP_TRY(verify_window(reader, records.subspan(first, end - first), decode,
                              {options.threads, progress.next(bytes)}, damages));
    first = end;
  }
  sort_by_step(damages);
  return damages;
}

// A writer may have changed the step while it was read. Then verifies it again, and replaces `damages`. Returns false,
// without damages, if the step is gone.
Result<bool> Store::Impl::verify_again(store::CheckpointReader& reader, store::CommitRecord record, bool is_retired,
                                       const StoreVerifyOptions& options, std::vector<StoreDamage>& damages) const {
  for (int again = 0; !damages.empty(); ++again) {
    auto now = store::read_commit_record(file_system_, layout_, record.step, is_retired);
    if (!now && now.error().kind() == ErrorKind::not_found) {
      damages.clear();
      return false;
    }
    if (!now || *now == record) break;
    if (again == kVerifyAgain) {
      return fail(ErrorKind::busy, fmt::format("{}: step {} changed {} times while it was being verified; verify it "
                                               "again later",
                                               layout_.root(), record.step, kVerifyAgain + 1));
    }
    damages.clear();
    record = std::move(*now);
    const store::CommitRecord* const one = &record;
    BITSNAP_TRY(verify_window(reader, {&one, 1}, options.decode, {options.run.threads, nullptr}, damages));
  }
  return true;
}

Result<StoreVerification> Store::Impl::verify(const StoreVerifyOptions& options) const {
  StoreVerification verification;
  BITSNAP_ASSIGN(const std::vector<store::StepEntry> entries, directories_.list());
  for (const std::uint64_t step : options.steps) {
    const auto found = std::ranges::lower_bound(entries, step, {}, &store::StepEntry::step);
    if (found == entries.end() || found->step != step || found->state != store::StepState::committed) {
      return tl::unexpected(directories_.not_found(step));
    }
  }
  struct Item {
    store::CommitRecord record;
    bool is_retired = false;
  };
  std::vector<Item> items;
  for (const store::StepEntry& entry : entries) {
    const bool is_wanted = options.steps.empty() || std::ranges::find(options.steps, entry.step) != options.steps.end();
    if (!is_wanted) continue;
    if (entry.state == store::StepState::uncommitted) {
      if (auto strays = directories_.removable(entry.step)) {
        std::ranges::move(*strays, std::back_inserter(verification.strays));
      } else if (strays.error().kind() != ErrorKind::not_found) {
        verification.strays.push_back(fmt::format("{}/{}", store::kCheckpointsName, store::step_name(entry.step)));
      }
      continue;
    }
    const bool is_retired = entry.state == store::StepState::retired;
    auto record = store::read_commit_record(file_system_, layout_, entry.step, is_retired);
    // Removed since the listing.
    if (!record && record.error().kind() == ErrorKind::not_found) {
      if (options.steps.empty()) continue;
      return tl::unexpected(directories_.not_found(entry.step));
    }
    if (const auto strays = directories_.strays(entry.step, record ? &*record : nullptr)) {
      for (const std::string& name : *strays) {
        verification.strays.push_back(store::RunLayout::relative_file(entry.step, name));
      }
    }
    if (!is_retired) ++verification.checkpoints;
    if (!record) {
      verification.damages.push_back(store::record_damage(entry.step, is_retired, std::move(record).error()));
      continue;
    }
    // The needed chunks of a retired step are read with the checkpoints that need them.
    if (is_retired && options.decode) continue;
    items.push_back({std::move(*record), is_retired});
  }

  // Uses a new reader: files that this handle's reader holds open may be gone from the store.
  store::CheckpointReader reader(file_system_, layout_, options_.limits);
  std::vector<const store::CommitRecord*> records;
  for (const Item& item : items) {
    records.push_back(&item.record);
    for (std::size_t number = 0; number < item.record.file_count(); ++number) {
      verification.bytes += item.record.file(number).bytes;
    }
  }
  BITSNAP_ASSIGN(std::vector<StoreDamage> damages, verify_records(reader, records, options.decode, options.run));
  for (auto damage = damages.begin(); damage != damages.end();) {
    const auto next = std::find_if(damage, damages.end(), [&](const StoreDamage& d) { return d.step != damage->step; });
    const Item& item = *std::ranges::find(items, damage->step, [](const Item& i) { return i.record.step; });
    std::vector<StoreDamage> found(std::make_move_iterator(damage), std::make_move_iterator(next));
    BITSNAP_ASSIGN(const bool is_there, verify_again(reader, item.record, item.is_retired, options, found));
    if (!is_there && !options.steps.empty()) return tl::unexpected(directories_.not_found(item.record.step));
    std::ranges::move(found, std::back_inserter(verification.damages));
    damage = next;
  }
  sort_by_step(verification.damages);
  if (options.steps.empty()) {
    const auto labels = store::read_label_record(file_system_, layout_);
    if (!labels) verification.damages.push_back({0, std::string(store::kLabelsName), "", labels.error()});
  }
  return verification;
}

}  // namespace bitsnap
