// The budget of one read, and its cache.
#include "restore/read_context.hpp"

#include <cstring>
#include <utility>

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

namespace bitsnap {

// A chunk that is being decoded.
class ReadContext::Step {
 public:
  Step(ReadContext& context, bool is_fork) noexcept
      : context_(context),
        frame_(context.scratch_),
        deepest_outside_(std::exchange(context.deepest_, context.depth_)),
        is_fork_(is_fork) {
    ++context_.depth_;
    ++context_.decodes_;
    if (is_fork_) ++context_.forks_;
  }
  ~Step() {
    --context_.depth_;
    if (is_fork_) --context_.forks_;
    context_.deepest_ = std::max(context_.deepest_, deepest_outside_);
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // The longest path from the chunk to one of its direct or indirect inputs.
  [[nodiscard]] std::uint32_t steps_below() const noexcept { return context_.deepest_ - (context_.depth_ - 1); }

 private:
  ReadContext& context_;
  Scratch::Frame frame_;
  const std::uint32_t deepest_outside_;
  const bool is_fork_;
};

Result<void> ReadContext::check_budget(const Chunk& chunk) {
  // The requested chunk itself does not count as a link.
  if (depth_ > max_depth_) {
    return fail(ErrorKind::corrupt, fmt::format("more than {} links from the requested chunk: the chain of bases is "
                                                "too long or circular",
                                                max_depth_));
  }
  if (decodes_ >= max_decodes_) {
    return fail(ErrorKind::resource_exhausted,
                fmt::format("decoding the requested chunk needs more than {} other chunks", max_decodes_));
  }
  if (chunk.key.snapshot != admitted_) {
    budget_.admit(chunk.key.snapshot, chunk.allowance);
    admitted_ = chunk.key.snapshot;
  }
  return budget_.spend(chunk.cost);
}

// A cached chunk that would exceed the depth is decoded again, which fails: the limit must not depend on earlier reads.
bool ReadContext::recall(const restore::ChunkKey& key, ByteSpan out) noexcept {
  const restore::DecodedChunks::Entry* const entry = decoded_.find(key);
  if (entry == nullptr || entry->size_bytes != out.size()) return false;
  if (depth_ > max_depth_ || entry->steps_below > max_depth_ - depth_) return false;
  deepest_ = std::max(deepest_, depth_ + entry->steps_below);
  std::memcpy(out.data(), entry->bytes.get(), out.size());
  return true;
}

bool ReadContext::is_needed_again(const Chunk& chunk) const noexcept {
  if (chunk.is_reference) return false;
  if (expected_ == Expected::all) return true;
  return is_nested() ? forks_ > 0 || chunk.is_part : chunk.is_peer && expected_ == Expected::peers;
}

Result<void> ReadContext::decode_once(const Chunk& chunk, ByteSpan out, FunctionRef<Result<void>()> decode) {
  if (recall(chunk.key, out)) return {};
  BITSNAP_TRY(check_budget(chunk));
  std::uint32_t steps_below = 0;
  {
    const Step step(*this, chunk.is_fork);
    BITSNAP_TRY(decode());
    steps_below = step.steps_below();
  }
  if (is_needed_again(chunk)) decoded_.put(chunk.key, steps_below, out);
  return {};
}

}  // namespace bitsnap
