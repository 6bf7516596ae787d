// The budget of one read, and its cache.
#include "restore/read_context.hpp"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"

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
