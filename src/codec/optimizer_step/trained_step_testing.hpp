// The state of a tensor before and after a step of AdamW, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/coding_testing.hpp"
#include "codec/trained_like_testing.hpp"

namespace bitsnap::codec {

struct Hyperparameters {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double rate = 6e-4;
  double decay = 0.1;
  double epsilon = 1e-8;
  double bias1 = 1;
  double bias2 = 1;
};

// The parameter and its moments.
struct TrainedState {
  Floats x, m, v;
};

// Random numbers with the magnitudes of a training.
[[nodiscard]] TrainedState trained_state(std::size_t elements, std::uint64_t seed);

// One step with random gradients, computed like torch, operation by operation.
void take_step(TrainedState& state, const Hyperparameters& hyperparameters, std::uint64_t seed);

struct TrainedStep {
  TrainedState before, after;
};
[[nodiscard]] TrainedStep train_step(std::size_t elements, const Hyperparameters& hyperparameters, std::uint64_t seed);

// The same in BF16. `fused`: rounded once at the end of the step, and not after each operation on tensors.
void take_rounded_step(TrainedState& state, const Hyperparameters& hyperparameters, std::uint64_t seed,
                       bool fused = false);
[[nodiscard]] TrainedState rounded_state(TrainedState state);
[[nodiscard]] TrainedStep train_rounded_step(std::size_t elements, const Hyperparameters& hyperparameters,
                                             std::uint64_t seed, bool fused = false);

// The F32 chunk in BF16. Precondition: its numbers and those of its inputs are BF16 numbers.
[[nodiscard]] TestChunk as_bf16(const TestChunk& chunk);
[[nodiscard]] std::vector<std::byte> bf16_bytes(const Floats& floats);

[[nodiscard]] std::vector<std::byte> trained_bytes(const Floats& floats);

// Chunks of the state after the step, with the inputs that predict them.
[[nodiscard]] TestChunk second_moment_chunk(const TrainedStep& step);
[[nodiscard]] TestChunk parameter_chunk(const TrainedStep& step);

}  // namespace bitsnap::codec
