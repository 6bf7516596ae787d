#include "store/mirror_records.hpp"

#include "base/try.hpp"

namespace bitsnap::store {

bool is_unchanged(const os::FileInfo& a, const os::FileInfo& b) {
  return a.file_id == b.file_id && a.modified_ns == b.modified_ns && a.size_bytes == b.size_bytes;
}

Result<MirroredSteps> MirrorRecords::read() {
  BITSNAP_ASSIGN(const auto entries, directories_.list_again());
  std::map<std::uint64_t, Known> known;
  MirroredSteps steps;
  unreadable_.clear();
  without_record_.clear();
  for (const StepEntry& entry : entries) {
    if (entry.state == StepState::uncommitted) {  // it may have lost its record
      without_record_.push_back(entry.step);
      continue;
    }
    const bool is_retired = entry.state == StepState::retired;
    const auto before = known_.find(entry.step);
    Known now{entry.record, {{}, is_retired}};
    if (before != known_.end() && is_unchanged(before->second.file, entry.record) &&
        before->second.step.is_retired == is_retired) {
      now.step.record = before->second.step.record;
    } else {
      auto record = read_commit_record(directories_.file_system(), directories_.layout(), entry.step, is_retired);
      if (!record && is_damage(record.error())) {
        unreadable_.push_back(entry.step);
        continue;
      }
      if (!record) return tl::unexpected(std::move(record).error());
      now.step.record = *std::move(record);
    }
    steps.emplace(entry.step, now.step);
    known.emplace(entry.step, std::move(now));
  }
  known_ = std::move(known);
  return steps;
}

}  // namespace bitsnap::store
