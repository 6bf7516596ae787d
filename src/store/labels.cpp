#include "store/labels.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/quote_name.hpp"
#include "base/similar_names.hpp"
#include "base/try.hpp"

namespace bitsnap::store {
namespace {

// How often a reader looks again while the labels change.
constexpr int kReadAgain = 16;

// Whether the record stays unreadable for this version. Any other error may be temporary.
bool is_unreadable(const Error& error) {
  return error.kind() == ErrorKind::corrupt || error.kind() == ErrorKind::truncated ||
         error.kind() == ErrorKind::unsupported;
}

}  // namespace

Result<std::optional<std::uint64_t>> Labels::step_of(const LabelEntry& entry) const {
  const auto is_committed = [&](std::uint64_t step) -> Result<bool> {
    BITSNAP_ASSIGN(const os::FileInfo record, file_system_.stat(layout_.commit(step)));
    return record.exists;
  };
  if (!entry.pending) {
    BITSNAP_ASSIGN(const bool is_there, is_committed(entry.step));
    return is_there ? std::optional(entry.step) : std::nullopt;
  }
  const auto record = read_commit_record(file_system_, layout_, entry.step);
  if (!record && record.error().kind() == ErrorKind::io) return tl::unexpected(record.error());
  // If the record cannot be read, it is probably the one that the label was given with.
  const bool is_there =
      record ? record->shards.front().id == entry.pending->id : record.error().kind() != ErrorKind::not_found;
  if (is_there) return std::optional(entry.step);
  if (!entry.pending->before) return std::optional<std::uint64_t>();
  return step_of({entry.label, *entry.pending->before, std::nullopt});
}

Result<LabelRecord> Labels::settled(const LabelRecord& record) const {
  LabelRecord settled;
  settled.labels.reserve(record.labels.size());
  for (const LabelEntry& entry : record.labels) {
    BITSNAP_ASSIGN(const std::optional<std::uint64_t> step, step_of(entry));
    if (step) settled.labels.push_back({entry.label, *step, std::nullopt});
  }
  return settled;
}

// A writer may change the labels and the checkpoints while this function looks at them. So the record must be the same
// before and after.
Result<std::vector<StepLabel>> Labels::all() const {
  BITSNAP_ASSIGN(LabelRecord record, read_label_record(file_system_, layout_));
  for (int again = 0;; ++again) {
    BITSNAP_ASSIGN(LabelRecord found, settled(record));
    BITSNAP_ASSIGN(LabelRecord after, read_label_record(file_system_, layout_));
    if (after != record && again < kReadAgain) {
      record = std::move(after);
      continue;
    }
    std::vector<StepLabel> labels;
    labels.reserve(found.labels.size());
    for (LabelEntry& entry : found.labels) labels.push_back({std::move(entry.label), entry.step});
    return labels;
  }
}

Result<std::uint64_t> Labels::find(const std::string& label) const {
  BITSNAP_TRY(check_labels({label}));
  BITSNAP_ASSIGN(const std::vector<StepLabel> all, all());
  const auto found = std::ranges::lower_bound(all, label, {}, &StepLabel::label);
  if (found != all.end() && found->label == label) return found->step;
  std::vector<std::string> names;
  for (const StepLabel& other : all) names.push_back(other.label);
  const std::string newest = similar_names({"latest"}, label).empty()
                                 ? ""
                                 : fmt::format("; did you mean {}@latest, the newest checkpoint?", layout_.root());
  return fail(ErrorKind::not_found,
              fmt::format("{}: no checkpoint has the label {}{}{}", layout_.root(), quote_name(label),
                          all.empty() ? "; the store has no labels" : similar_labels(names, label), newest));
}

void Labels::note(std::vector<Checkpoint>& checkpoints, const Result<std::vector<StepLabel>>& labels) {
  if (!labels) return;
  for (const StepLabel& label : *labels) {
    const auto found = std::ranges::lower_bound(checkpoints, label.step, {}, &Checkpoint::step);
    if (found != checkpoints.end() && found->step == label.step) found->labels.push_back(label.label);
  }
}

Result<void> Labels::change(const LabelRecord& current, const LabelRecord& next) {
  // A record that stays as it is is written again: a writer that was killed may not have synced it.
  if (next == current && current.labels.empty()) return {};
  const auto written = write_label_record(file_system_, layout_, next);
  if (!written) return tl::unexpected(written.error());
  directories_.note_sync(*written);
  return {};
}

Result<bool> Labels::concerns(std::uint64_t step, const std::vector<std::string>& labels) const {
  if (!labels.empty()) return true;
  const auto record = read_label_record(file_system_, layout_);
  if (!record && !is_unreadable(record.error())) return tl::unexpected(record.error());
  return record && record->mentions(step);
}

Result<std::vector<std::string>> Labels::give(const CommitRecord& record, const std::vector<std::string>& labels) {
  auto current = read_label_record(file_system_, layout_);
  // Damaged labels must not stop the training.
  if (!current && labels.empty() && is_unreadable(current.error())) return std::vector<std::string>();
  if (!current) return tl::unexpected(std::move(current).error());
  if (labels.empty() && !current->mentions(record.step)) return std::vector<std::string>();
  BITSNAP_ASSIGN(LabelRecord next, settled(*current));
  for (const std::string& label : labels) {
    const LabelEntry* const before = next.find(label);
    if (before != nullptr && before->step == record.step) continue;  // a checkpoint that is replaced keeps its labels
    const auto named = before == nullptr ? std::nullopt : std::optional(before->step);
    next.set({label, record.step, LabelEntry::Pending{record.shards.front().id, named}});
  }
  BITSNAP_TRY(change(*current, next));
  std::vector<std::string> given;
  for (const LabelEntry& entry : next.labels) {
    if (entry.step == record.step) given.push_back(entry.label);
  }
  return given;
}

Result<void> Labels::settle() {
  const auto current = read_label_record(file_system_, layout_);
  if (!current && is_unreadable(current.error())) return {};  // nobody can tell which checkpoints they name
  if (!current) return tl::unexpected(current.error());
  BITSNAP_ASSIGN(const LabelRecord next, settled(*current));
  return change(*current, next);
}

Result<void> Labels::set(std::uint64_t step, const std::vector<std::string>& labels) {
  BITSNAP_ASSIGN(const LabelRecord current, read_label_record(file_system_, layout_));
  BITSNAP_ASSIGN(LabelRecord next, settled(current));
  for (const std::string& label : labels) next.set({label, step, std::nullopt});
  return change(current, next);
}

Result<void> Labels::remove(const std::string& label) {
  BITSNAP_TRY(find(label));
  BITSNAP_ASSIGN(const LabelRecord current, read_label_record(file_system_, layout_));
  BITSNAP_ASSIGN(LabelRecord next, settled(current));
  std::erase_if(next.labels, [&](const LabelEntry& entry) { return entry.label == label; });
  return change(current, next);
}

}  // namespace bitsnap::store
