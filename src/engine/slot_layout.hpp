// How a state lies in a slot of the arena: docs/spec/engine.md, "The arena". The trainer plans a slot and copies the
// state into it; the agent reads a state out of it whose tensors are that memory.
//
// The trainer's side trusts nobody with its own memory; the agent's side takes the slot for bytes that may be anything
// and may change while they are looked at. No state; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/writer.hpp>

#include "base/bytes.hpp"
#include "exec/executor.hpp"

namespace bitsnap::engine {

inline constexpr std::uint64_t kSlotUnit = 4096;  // slots are multiples of it, and so is what stands before them
inline constexpr std::uint64_t kTensorAlignment = 64;

// Where in a slot everything goes.
struct SlotPlan {
  std::string directory;
  std::string details;
  std::vector<std::uint64_t> offsets;  // per tensor, from the slot's beginning; of aliases and empty ones 0
  std::uint64_t tensors_offset = 0;
  std::uint64_t bytes = 0;      // of the slot that are used
  std::uint64_t raw_bytes = 0;  // of the tensors
};

// invalid_argument for what no snapshot can hold: what a save finds wrong is found before anything is copied.
[[nodiscard]] Result<SlotPlan> plan_slot(const State& state);

// Copies everything into the slot, in parallel. Precondition: the plan is that of the state, and fits the slot.
[[nodiscard]] Result<void> fill_slot(const State& state, const SlotPlan& plan, ByteSpan slot, exec::Executor& executor);

// The state in the first `bytes` bytes of a slot. Its tensors are memory of the slot; all else is copied before it is
// looked at. corrupt for what does not obey the document.
[[nodiscard]] Result<State> read_slot(ConstByteSpan slot, std::uint64_t bytes, const DecodeLimits& limits = {});

// Where the tensors of such a state lie; empty where they take no room.
[[nodiscard]] std::vector<ConstByteSpan> tensor_bytes(const State& state);

}  // namespace bitsnap::engine
