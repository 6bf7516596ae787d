// Verification: every record, every file, every chunk of every checkpoint.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "store/store_impl.hpp"
#include "store/summed_progress.hpp"

namespace bitsnap {
namespace {

// Of the machine, the caller or bitsnap, not of the store.
bool ends_verification(const Error& error) noexcept {
  return error.kind() == ErrorKind::resource_exhausted || error.kind() == ErrorKind::internal ||
         error.kind() == ErrorKind::cancelled;
}

}  // namespace

Result<void> Store::Impl::verify_step(std::uint64_t step, const store::CommitRecord& record, bool decode,
                                      const RunOptions& options, std::vector<StoreDamage>& damages) const {
  for (const store::ShardFile& file : record.shards) {
    const auto note = [&](std::string where, Error error) {
      damages.push_back({step, store::RunLayout::relative_file(step, file.file), std::move(where), std::move(error)});
    };
    auto snapshot = decode ? reader_->open_file(step, file) : reader_->open_alone(step, file);
    if (!snapshot) {
      if (ends_verification(snapshot.error())) return tl::unexpected(std::move(snapshot).error());
      note("", std::move(snapshot).error());
      continue;
    }
    BITSNAP_ASSIGN(std::vector<Damage> found, (*snapshot)->verify(decode, options));
    for (Damage& damage : found) note(std::move(damage.where), std::move(damage.error));
  }
  return {};
}

Result<StoreVerification> Store::Impl::verify(const StoreVerifyOptions& options) const {
  StoreVerification verification;
  BITSNAP_ASSIGN(const std::vector<store::StepEntry> entries, directories_.list());
  for (const std::uint64_t step : options.steps) {
    const auto found = std::ranges::lower_bound(entries, step, {}, &store::StepEntry::step);
    if (found == entries.end() || found->step != step || found->state != store::StepState::committed) {
      return tl::unexpected(step_not_found(step));
    }
  }
  struct Item {
    std::uint64_t step = 0;
    bool is_retired = false;
    store::CommitRecord record;
    std::uint64_t raw_bytes = 0;
  };
  std::vector<Item> items;
  std::uint64_t total = 0;
  for (const store::StepEntry& entry : entries) {
    const bool is_wanted = options.steps.empty() || std::ranges::find(options.steps, entry.step) != options.steps.end();
    if (!is_wanted) continue;
    if (entry.state == store::StepState::uncommitted) {
      verification.strays.push_back(fmt::format("{}/{}", store::kCheckpointsName, store::step_name(entry.step)));
      continue;
    }
    const bool is_retired = entry.state == store::StepState::retired;
    auto record = store::read_commit_record(file_system_, layout_, entry.step, is_retired);
    // Gone: pruned since it was listed.
    if (!record && record.error().kind() == ErrorKind::not_found) continue;
    if (const auto strays = directories_.strays(entry.step, record ? &*record : nullptr)) {
      for (const std::string& name : *strays) {
        verification.strays.push_back(store::RunLayout::relative_file(entry.step, name));
      }
    }
    if (!is_retired) ++verification.checkpoints;
    if (!record) {
      const std::string_view name = is_retired ? store::kRetiredName : store::kCommitName;
      verification.damages.push_back(
          {entry.step, store::RunLayout::relative_file(entry.step, name), "", std::move(record).error()});
      continue;
    }
    Item item{entry.step, is_retired, std::move(*record), 0};
    for (const store::ShardFile& file : item.record.shards) item.raw_bytes += file.raw_bytes;
    // Of what is only kept for others, the chunks that they need are read with them.
    if (is_retired && options.decode) continue;
    total += item.raw_bytes;
    items.push_back(std::move(item));
  }

  store::SummedProgress progress(options.run.progress, total);
  for (const Item& item : items) {
    std::vector<StoreDamage> damages;
    BITSNAP_TRY(verify_step(item.step, item.record, options.decode,
                            {options.run.threads, progress.next(item.raw_bytes)}, damages));
    if (!damages.empty()) {
      // A prune may have taken it away, or written it again, while it was read.
      const auto again = store::read_commit_record(file_system_, layout_, item.step, item.is_retired);
      if (!again && again.error().kind() == ErrorKind::not_found) continue;
      if (again && *again != item.record) {
        damages.clear();
        BITSNAP_TRY(verify_step(item.step, *again, options.decode, {options.run.threads, nullptr}, damages));
      }
    }
    for (const store::ShardFile& file : item.record.shards) verification.bytes += file.bytes;
    std::ranges::move(damages, std::back_inserter(verification.damages));
  }
  std::ranges::stable_sort(verification.damages, {}, &StoreDamage::step);
  return verification;
}

}  // namespace bitsnap
