// The layout of a state in a slot of the arena: docs/spec/engine.md, "The arena". The trainer plans a slot and copies
// the state into it. The agent reads a state from it, whose tensors point into the slot.
//
// The agent accepts any bytes in a slot, and the bytes may change while it reads them. No state; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/writer.hpp>

#include "base/bytes.hpp"
#include "container/directory.hpp"
#include "exec/executor.hpp"

namespace bitsnap::engine {

inline constexpr std::uint64_t kSlotUnit =
    4096;  // the size of a slot, and the offset of the first one, are multiples of this
inline constexpr std::uint64_t kTensorAlignment = 64;
// What an agent needs for each tensor of a state beside the bytes of the tensor, at most.
inline constexpr std::uint64_t kTensorBytes = 2048;

// What this number of threads needs to encode or decode a state, at most.
[[nodiscard]] constexpr std::uint64_t coding_bytes(std::uint64_t threads, std::uint64_t state_bytes) noexcept {
  constexpr std::uint64_t kThreadBytes = std::uint64_t{64} << 20;
  constexpr std::uint64_t kStateShare = 4;
  return std::min(threads * kThreadBytes, state_bytes * kStateShare);
}

// The offsets and texts of a state in a slot.
struct SlotPlan {
  std::string directory;
  std::string details;
  std::vector<std::uint64_t> offsets;  // per tensor, from the beginning of the slot; 0 for aliases and empty tensors
  std::uint64_t tensors_offset = 0;
  std::uint64_t bytes = 0;      // used bytes of the slot
  std::uint64_t raw_bytes = 0;  // of the tensors
};

// Plans slots. Tensors that are the same as those of the last state, but for their data, are not checked again, and
// their text is kept. For one thread at a time.
class SlotPlanner {
 public:
  // invalid_argument for a state that no snapshot can hold, so that a save refuses it before it copies anything.
  [[nodiscard]] Result<SlotPlan> plan(const State& state);
  // How many tensors were checked so far.
  [[nodiscard]] std::uint64_t checked_tensors() const noexcept { return checked_tensors_; }

 private:
  [[nodiscard]] bool has_tensors_of(const State& state) const;
  [[nodiscard]] Result<void> check_tensors(const State& state);

  container::Content content_;  // of the last state, without metadata and tree
  std::vector<std::optional<MasterSlice>> masters_;
  std::string tensors_;  // as JSON
  std::uint64_t checked_tensors_ = 0;
};

// The plan of one state.
[[nodiscard]] Result<SlotPlan> plan_slot(const State& state);

// Copies the state into the slot, in parallel. Precondition: the plan was made from this state, and it fits the slot.
[[nodiscard]] Result<void> fill_slot(const State& state, const SlotPlan& plan, ByteSpan slot, exec::Executor& executor);

// The state in the first `bytes` bytes of a slot. Its tensors point into the slot; everything else is copied before it
// is parsed. corrupt if the bytes do not follow the document.
[[nodiscard]] Result<State> read_slot(ConstByteSpan slot, std::uint64_t bytes, const DecodeLimits& limits = {});

// The bytes of the tensors of such a state in the slot; empty for tensors that take no space.
[[nodiscard]] std::vector<ConstByteSpan> tensor_bytes(const State& state);

}  // namespace bitsnap::engine
