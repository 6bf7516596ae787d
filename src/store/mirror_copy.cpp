#include "store/mirror_copy.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "store/stored_files.hpp"

namespace bitsnap::store {

Result<void> MirrorCopy::read() {
  BITSNAP_ASSIGN(steps_, records_.read());
  // A process that was killed may not have synced what it changed, and what comes now relies on that.
  std::set<std::uint64_t> all(records_.without_record().begin(), records_.without_record().end());
  all.insert(records_.unreadable().begin(), records_.unreadable().end());
  for (const auto& [step, entry] : steps_) all.insert(step);
  for (const std::uint64_t step : all) BITSNAP_TRY(directories().sync_step(step));
  return directories().sync_checkpoints();
}

Result<void> MirrorCopy::change(std::uint64_t step, const MirroredSteps& wanted) {
  const auto before = steps_.find(step);
  const auto now = wanted.find(step);
  if (now == wanted.end()) {
    BITSNAP_TRY(records_.directories().remove(step));
    steps_.erase(step);
    return {};
  }
  const MirroredStep& entry = now->second;
  const bool is_damaged = std::ranges::binary_search(records_.unreadable(), step);
  if (before == steps_.end() && !entry.is_retired && !is_damaged) {
    BITSNAP_TRY(copy_commit_record(to_, copy_, entry.record));
  } else {
    BITSNAP_TRY(replace_commit_record(to_, copy_, entry.record, entry.is_retired));
  }
  if (before != steps_.end() && before->second.is_retired != entry.is_retired) {
    const std::string other = copy_.step_file(step, record_file_name(before->second.is_retired));
    BITSNAP_TRY(to_.remove(other));
    BITSNAP_TRY(records_.directories().sync_step(step));
  }
  copy_tensor_index(step);
  if (before != steps_.end()) BITSNAP_TRY(remove_unnamed(before->second.record, entry.record));
  steps_[step] = entry;
  return {};
}

// A cache, which need not be there.
void MirrorCopy::copy_tensor_index(std::uint64_t step) {
  static_cast<void>(no_throw("tensor index", [&]() -> Result<void> {
    const std::string source = run_.step_file(step, kTensorsName);
    const std::string target = copy_.step_file(step, kTensorsName);
    BITSNAP_ASSIGN(const os::FileInfo info, from_.stat(source));
    if (!info.exists) return {};
    static_cast<void>(to_.remove(target));
    return copy_file(from_, source, to_, target);
  }));
}

// Removes the files of a step that its new record does not name.
Result<void> MirrorCopy::remove_unnamed(const CommitRecord& before, const CommitRecord& now) {
  for (std::size_t number = 0; number < before.file_count(); ++number) {
    const std::string& name = before.file(number).file;
    if (!has_name(now, name)) BITSNAP_TRY(records_.directories().remove_file(now.step, name));
  }
  return {};
}

}  // namespace bitsnap::store
