#include "store/mirror_labels.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/try.hpp"
#include "store/labels.hpp"

namespace bitsnap::store {
namespace {

// The step that an entry of the copy names.
std::optional<std::uint64_t> named_step(const LabelEntry& entry, const MirroredSteps& there) {
  if (!entry.pending) return entry.step;
  const auto record = there.find(entry.step);
  const bool is_there = record != there.end() && !record->second.is_retired &&
                        record->second.record.shards.front().id == entry.pending->id;
  return is_there ? entry.step : entry.pending->before;
}

}  // namespace

LabelRecord merge_labels(const LabelRecord& run, const LabelRecord& copy, const MirroredSteps& there,
                         const std::set<std::uint64_t>& steps_of_run, const std::set<std::uint64_t>& lost) {
  const auto is_only_in_copy = [&](std::uint64_t step) {
    const auto found = there.find(step);
    return found != there.end() && !found->second.is_retired && !steps_of_run.contains(step);
  };
  // A label of the run that names none there must name none of the others here.
  const auto names_another = [&](std::uint64_t step) { return is_only_in_copy(step) && !lost.contains(step); };
  LabelRecord merged;
  for (LabelEntry entry : run.labels) {
    if (!entry.pending && names_another(entry.step)) continue;
    if (entry.pending && entry.pending->before && names_another(*entry.pending->before)) entry.pending->before.reset();
    merged.labels.push_back(std::move(entry));
  }
  for (const LabelEntry& entry : copy.labels) {
    const auto step = named_step(entry, there);
    if (merged.labels.size() == kMaxLabels) break;
    if (step && is_only_in_copy(*step) && run.find(entry.label) == nullptr) merged.set(entry);
  }
  return merged;
}

Result<void> bring_labels(std::uint64_t step, StepDirectories& run, StepDirectories& copy) {
  const auto given = Labels(run).all();
  if (!given && !is_damage(given.error())) return tl::unexpected(given.error());
  if (!given || std::ranges::find(*given, step, &StepLabel::step) == given->end()) return {};
  auto record = read_label_record(copy.file_system(), copy.layout());
  if (!record && !is_damage(record.error())) return tl::unexpected(std::move(record).error());
  LabelRecord next = record ? *record : LabelRecord();
  std::vector<StepLabel> found;
  if (record) {
    BITSNAP_ASSIGN(found, Labels(copy).all());
  }
  for (const StepLabel& label : *given) {
    if (label.step == step && std::ranges::find(found, label.label, &StepLabel::label) == found.end()) {
      next.set({label.label, step, std::nullopt});
    }
  }
  if (record && next == *record) return {};
  return write_label_record(copy.file_system(), copy.layout(), next).map([](bool) {});
}

}  // namespace bitsnap::store
