// Repair of records: those of the run, its labels and its checkpoints are rebuilt from the files.
#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "os/random.hpp"
#include "quantize/loss_rules.hpp"
#include "store/record_rebuild.hpp"
#include "store/store_repairer.hpp"

namespace bitsnap {
namespace {

// The place of the snapshot `id`, if the record names it. What is coded against a later step was rewritten, and files
// that were coded against it before do not say how deep its chunks are now.
std::optional<store::StepReference> find_in(const store::CommitRecord& record, const SnapshotId& id) {
  const auto file = std::ranges::find(record.shards, id, &store::ShardFile::id);
  if (file == record.shards.end()) return std::nullopt;
  const bool is_rewritten = std::ranges::any_of(
      file->references, [&](const store::StepReference& reference) { return reference.step > record.step; });
  return store::StepReference{id, record.step, static_cast<std::uint32_t>(file - record.shards.begin()), !is_rewritten};
}

}  // namespace

// The policy of the newest checkpoint whose record can be read.
Result<std::optional<Policy>> Store::Impl::Repairer::newest_policy() {
  BITSNAP_ASSIGN(const std::vector<store::StepEntry> steps, store_.directories_.list());
  for (const store::StepEntry& entry : std::views::reverse(steps)) {
    if (entry.state == store::StepState::uncommitted) continue;
    const auto record = store::read_commit_record(store_.file_system_, store_.layout_, entry.step,
                                                  entry.state == store::StepState::retired);
    if (!record) continue;
    if (const auto policy = policy_from_name(record->policy)) return policy;
  }
  return std::optional<Policy>();
}

// Rebuilds bitsnap.json, with a new id, if it is lost or damaged. Its loss rules are lost, and the report says so. The
// policy comes from a commit record.
Result<void> Store::Impl::Repairer::mend_run_record() {
  const std::string path = store_.layout_.run_record();
  auto run = store::read_run_record(store_.file_system_, path);
  if (run) {
    store_.run_ = std::move(*run);
    return options_.dry_run ? Result<void>() : store_.directories_.sync(store_.layout_.root());
  }
  if (!store::is_damage(run.error())) return tl::unexpected(std::move(run).error());
  BITSNAP_ASSIGN(const std::optional<Policy> policy, newest_policy());
  Policy& chosen = *store_.run_.settings.policy;
  chosen = policy.value_or(chosen);
  const bool loses = !quantize::preset_rules(chosen).empty();
  const std::string_view later = loses ? "new checkpoints are lossy as this policy says"
                                       : "new checkpoints are lossless unless loss rules are given";
  report_.mended.push_back(
      {std::nullopt,
       fmt::format("{} rebuilt ({}) with policy {}{}; its loss rules, if any, are lost: {}", store::kRunRecordName,
                   run.error().message(), policy_name(chosen), policy ? " of the newest checkpoint" : "", later)});
  store_.run_.id = SnapshotId{os::random_u64(), os::random_u64()}.to_hex();
  if (options_.dry_run) return {};
  BITSNAP_ASSIGN(const bool synced, store::write_run_record(store_.file_system_, path, store_.run_, true));
  store_.directories_.note_sync(synced);
  return {};
}

// Removes labels.json if it cannot be read. Runs when all records are mended, and before damaged steps are set aside.
Result<void> Store::Impl::Repairer::mend_labels() {
  const auto labels = store::read_label_record(store_.file_system_, store_.layout_);
  if (labels) return options_.dry_run || labels->labels.empty() ? Result<void>() : store_.labels_.settle();
  if (!store::is_damage(labels.error())) return tl::unexpected(labels.error());
  report_.mended.push_back({std::nullopt, fmt::format("{} removed ({}); its labels are lost", store::kLabelsName,
                                                      labels.error().message())});
  if (options_.dry_run) return {};
  BITSNAP_TRY(store_.file_system_.remove(store_.layout_.labels()));
  return store_.directories_.sync(store_.layout_.root());
}

Result<void> Store::Impl::Repairer::mend_files() {
  for (auto& [step, known] : store_.known_.all()) {
    if (known.state == store::StepState::uncommitted) continue;
    const Result<store::CommitRecord>& record = store_.known_.record(step);
    if (!record || !record->files) continue;
    store::CommitRecord without = *record;
    const store::ShardFile file = *std::exchange(without.files, std::nullopt);
    std::optional<Error> damage;
    if (const auto opened = store_.reader_->open_file(step, file)) {
      BITSNAP_ASSIGN(std::vector<Damage> found, (*opened)->verify(true, {options_.run.threads, nullptr}));
      if (!found.empty()) damage = std::move(found.front().error);
    } else {
      damage = opened.error();
    }
    if (!damage) continue;
    // A file that the system refuses to read may be whole.
    if (!store::is_damage(*damage)) return tl::unexpected(*std::move(damage));
    BITSNAP_TRY(replace_record(step, known, std::move(without), "its files were lost: " + damage->message()));
  }
  return {};
}

Result<store::CommitRecord> Store::Impl::Repairer::rebuild(std::uint64_t step, std::optional<std::uint64_t> gone) {
  const auto find_base = [&](const SnapshotId& id, std::uint64_t by) {
    std::optional<store::StepReference> found = find(id, by);
    if (!found && gone) found = store::StepReference{id, *gone, 0, false};
    return found;
  };
  return store::rebuild_commit_record(store_.file_system_, store_.layout_, step, find_base, store_.options_.limits);
}

std::optional<std::uint64_t> Store::Impl::Repairer::missing_step_below(std::uint64_t step) const {
  while (step > 0) {
    if (!store_.known_.all().contains(--step)) return step;
  }
  return std::nullopt;
}

Result<store::CommitRecord> Store::Impl::Repairer::rebuild_as(std::uint64_t step, store::StepState& state) {
  auto rebuilt = rebuild(step);
  const bool was_lost = state == store::StepState::uncommitted;
  if (was_lost) found_again_.insert(step);
  if (rebuilt && was_lost) state = store::StepState::committed;
  if (rebuilt || failure_ || !store::is_damage(rebuilt.error())) return rebuilt;
  // The references of a retired checkpoint may be gone, and so may those of one that is kept as damaged.
  if (state == store::StepState::committed && !takes_gone_bases_) return rebuilt;
  auto without = rebuild(step, missing_step_below(step));
  if (!without) return rebuilt;
  if (was_lost) state = store::StepState::retired;
  return without;
}

// The newest checkpoint is never removed. So if only retired ones are left, the newest has lost its record, and is
// rebuilt.
Result<void> Store::Impl::Repairer::mend_newest() {
  for (auto& [step, known] : std::views::reverse(store_.known_.all())) {
    if (known.state != store::StepState::uncommitted) continue;
    BITSNAP_ASSIGN(const bool is_mended,
                   mend_missing(step, known, "it was missing, and the store has no other checkpoint"));
    if (is_mended) return {};
  }
  return {};
}

// A record is rebuilt with those of the steps that it refers to, which may be later and be mended after it.
Result<void> Store::Impl::Repairer::mend_records() {
  BITSNAP_TRY(mend_records_once());
  bool is_any_left = false;
  for (auto& [step, known] : store_.known_.all()) {
    if (known.state == store::StepState::uncommitted || store_.known_.record(step)) continue;
    known.record.reset();
    is_any_left = true;
  }
  beyond_rebuilding_.clear();
  takes_gone_bases_ = true;
  return is_any_left ? mend_records_once() : Result<void>();
}

Result<void> Store::Impl::Repairer::mend_records_once() {
  const std::optional<std::uint64_t> last = store_.known_.newest();
  for (auto& [step, known] : store_.known_.all()) {
    if (known.state == store::StepState::uncommitted) {
      // A step that others refer to was committed once, so it has lost its record.
      if (!store_.known_.is_referred_to(step, store::UnreadableRecord::refers_to_nothing)) {
        // A removal takes the record first and then the files. A step with all its files has probably lost its record.
        if (last && step < *last) {
          BITSNAP_TRY(mend_missing(step, known, "it was missing, and all shard files of the step exist"));
        }
        continue;
      }
    }
    BITSNAP_TRY(mend_record(step, known));
    if (known.state == store::StepState::uncommitted) known.state = store::StepState::committed;
  }
  return {};
}

Result<bool> Store::Impl::Repairer::mend_missing(std::uint64_t step, store::KnownStep& known, const std::string& why) {
  auto rebuilt = rebuild(step);
  if (failure_) return tl::unexpected(*failure_);
  if (!rebuilt && store::is_damage(rebuilt.error())) return false;
  if (!rebuilt) return tl::unexpected(std::move(rebuilt).error());
  known.state = store::StepState::committed;
  BITSNAP_TRY(replace_record(step, known, std::move(*rebuilt), why));
  return true;
}

std::vector<std::uint64_t> Store::Impl::Repairer::others(std::uint64_t step) const {
  std::vector<std::uint64_t> steps;
  for (auto below = std::make_reverse_iterator(store_.known_.all().lower_bound(step));
       below != store_.known_.all().rend(); ++below)
    steps.push_back(below->first);
  for (auto above = store_.known_.all().upper_bound(step); above != store_.known_.all().end(); ++above)
    steps.push_back(above->first);
  return steps;
}

std::optional<store::StepReference> Store::Impl::Repairer::find(const SnapshotId& id, std::uint64_t by) {
  std::optional<store::StepReference> result;
  for (const std::uint64_t step : others(by)) {
    store::KnownStep& known = store_.known_[step];
    if (known.state == store::StepState::uncommitted) continue;
    // A later step is asked only if no earlier one holds the snapshot.
    if (result && step > by) break;
    const Result<store::CommitRecord>& other = store_.known_.record(step);
    if (!other) {
      // This step may hold the snapshot: a file that the system refuses to read now may be whole.
      if (!failure_ && !store::is_damage(other.error())) failure_ = other.error();
      continue;
    }
    const std::optional<store::StepReference> found = find_in(*other, id);
    if (!found) continue;
    // If several steps hold the same content in different codings, nobody knows which one was meant. Then all that the
    // found one refers to counts as needed.
    if (result) {
      result->standalone = false;
      return result;
    }
    result = found;
  }
  return result ? result : find_uncommitted(id, by);
}

std::optional<store::StepReference> Store::Impl::Repairer::find_uncommitted(const SnapshotId& id, std::uint64_t by) {
  for (const std::uint64_t step : others(by)) {
    store::KnownStep& known = store_.known_[step];
    // A step that is just being rebuilt asks for another one.
    if (known.state != store::StepState::uncommitted || !beyond_rebuilding_.insert(step).second) continue;
    store::StepState state = store::StepState::uncommitted;
    auto rebuilt = rebuild_as(step, state);
    if (!rebuilt) {
      // A file that the system refuses to read may be whole.
      if (!failure_ && !store::is_damage(rebuilt.error())) failure_ = std::move(rebuilt).error();
      continue;
    }
    beyond_rebuilding_.erase(step);
    const std::optional<store::StepReference> found = find_in(*rebuilt, id);
    if (!found) continue;
    known.state = state;
    if (auto replaced =
            replace_record(step, known, std::move(*rebuilt), "it was missing, and other checkpoints refer to the step");
        !replaced) {
      failure_ = std::move(replaced).error();
    }
    return found;
  }
  return std::nullopt;
}

Result<void> Store::Impl::Repairer::replace_record(std::uint64_t step, store::KnownStep& known,
                                                   store::CommitRecord record, const std::string& why) {
  report_.mended.push_back({step, fmt::format("record rebuilt ({})", why)});
  return write_record(known, std::move(record));
}

Result<void> Store::Impl::Repairer::write_record(store::KnownStep& known, store::CommitRecord record) {
  if (options_.dry_run) {
    store_.reader_->assume(record);
  } else {
    BITSNAP_ASSIGN(const bool synced, store::replace_commit_record(store_.file_system_, store_.layout_, record,
                                                                   known.state == store::StepState::retired));
    store_.directories_.note_sync(synced);
  }
  known.set_record(std::move(record));
  return {};
}

Result<void> Store::Impl::Repairer::mend_record(std::uint64_t step, store::KnownStep& known) {
  const Result<store::CommitRecord>& record = store_.known_.record(step);
  if (record || !store::is_damage(record.error())) return {};
  const Error damage = record.error();
  auto rebuilt = rebuild_as(step, known.state);
  if (failure_) return tl::unexpected(*failure_);
  if (rebuilt) return replace_record(step, known, std::move(*rebuilt), damage.message());
  // The report names the damage of the record, and why the record could not be rebuilt.
  if (!store::is_damage(rebuilt.error())) return tl::unexpected(std::move(rebuilt).error());
  known.record = std::make_shared<const Result<store::CommitRecord>>(
      tl::unexpected(Error(damage.kind(), fmt::format("{}; the record cannot be rebuilt: {}", damage.message(),
                                                      rebuilt.error().message()))));
  return {};
}

}  // namespace bitsnap
