#include "store/mirror_failures.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/try.hpp"
#include "os/clock.hpp"
#include "store/mirror_records.hpp"

namespace bitsnap::store {
namespace {

// Until a file is tried again if nothing tells that it has changed: permissions, for example, have no such sign.
constexpr std::uint64_t kRetryNs = 600'000'000'000;

}  // namespace

Result<void> MirrorFailures::note(std::uint64_t step, const CommitRecord& record, const std::string& name,
                                  Error error) {
  std::string path = run_.step_file(step, name);
  BITSNAP_ASSIGN(const os::FileInfo info, from_.stat(path));
  steps_.insert_or_assign(step, Failure{record, std::move(path), info, std::move(error), os::monotonic_ns()});
  return {};
}

Result<void> MirrorFailures::forget(const MirroredSteps& wanted) {
  for (auto entry = steps_.begin(); entry != steps_.end();) {
    const Failure& failure = entry->second;
    const auto now = wanted.find(entry->first);
    BITSNAP_ASSIGN(const os::FileInfo info, from_.stat(failure.path));
    const bool is_same = now != wanted.end() && now->second.record == failure.record &&
                         info.exists == failure.file.exists && is_unchanged(info, failure.file);
    entry = is_same && os::monotonic_ns() - failure.at_ns < kRetryNs ? std::next(entry) : steps_.erase(entry);
  }
  return {};
}

bool MirrorFailures::are_outdated(const MirroredSteps& now) const {
  return std::ranges::any_of(steps_, [&](const auto& failed) {
    const auto found = now.find(failed.first);
    return found == now.end() || found->second.record != failed.second.record;
  });
}

std::set<std::uint64_t> MirrorFailures::steps() const {
  std::set<std::uint64_t> steps;
  for (const auto& [step, failure] : steps_) steps.insert(step);
  return steps;
}

std::optional<Error> MirrorFailures::error(const std::string& copy, std::set<std::uint64_t> held_back) const {
  if (steps_.empty()) return std::nullopt;
  const auto& [step, first] = *steps_.begin();
  held_back.erase(step);
  std::string message = fmt::format("{}: step {} is not copied: {}", copy, step, first.error.message());
  if (!held_back.empty()) {
    message += fmt::format("; nor {} {}, for this or a like reason", held_back.size() == 1 ? "is step" : "are steps",
                           fmt::join(held_back, ", "));
  }
  return Error(first.error.kind(), std::move(message));
}

}  // namespace bitsnap::store
