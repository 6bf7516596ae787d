#include "restore/work_budget.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/try.hpp"

namespace bitsnap::restore {
namespace {

// What every file may cost.
constexpr double kFloor = 1e9;
// Times the cost of decoding each chunk once. The largest of all tests, saves into chains of 32 among them, take 1.2
// times where they decode more than 100 MB and 3.5 times where they decode less.
constexpr double kTimes = 8;
// A chunk of 1 MiB that is unchanged takes 9 bytes: its hash, compressed, and what else an index needs.
constexpr double kPerStoredByte = 1 << 18;
constexpr double kClaimFloor = 4e9;

}  // namespace

WorkBudget::WorkBudget(const DecodeLimits& limits) noexcept
    : max_cost_(limits.max_cost), allowed_(kFloor * max_cost_) {}

std::uint64_t WorkBudget::allowance_of(std::uint64_t cost, std::uint64_t file_bytes) noexcept {
  constexpr double kMost = 1e18;
  return static_cast<std::uint64_t>(std::min(
      {kTimes * static_cast<double>(cost), kClaimFloor + kPerStoredByte * static_cast<double>(file_bytes), kMost}));
}

void WorkBudget::admit(std::uint64_t opening, std::uint64_t allowance) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(admitted_, opening) != admitted_.end()) return;
  admitted_.push_back(opening);
  allowed_.fetch_add(max_cost_ * static_cast<double>(allowance), std::memory_order_relaxed);
}

Result<void> WorkBudget::spend(std::uint64_t cost) {
  const std::uint64_t spent = spent_.fetch_add(cost, std::memory_order_relaxed) + cost;
  const double allowed = allowed_.load(std::memory_order_relaxed);
  if (static_cast<double>(spent) <= allowed) return {};
  return fail(ErrorKind::resource_exhausted,
              fmt::format("decoding more than {:.0f} bytes for this read exceeds the limit for files of their size; "
                          "BITSNAP_MAX_COST or --max-cost, now {}, raises it",
                          allowed, max_cost_));
}

}  // namespace bitsnap::restore
