#include "codec/optimizer_step/trained_step_testing.hpp"

#include <cmath>
#include <span>

#include "codec/trained_like_testing.hpp"

namespace bitsnap::codec {

namespace {

// Approximately normally distributed.
float normal(TestRandom& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(random.next() >> 11) * 0x1p-53;
  return static_cast<float>(sum);
}

}  // namespace

TrainedState trained_state(std::size_t elements, std::uint64_t seed) {
  TestRandom random(seed);
  TrainedState state;
  for (std::size_t i = 0; i < elements; ++i) {
    const float scale = std::ldexp(1.0F, -static_cast<int>(random.below(12)) - 8);
    state.x.push_back(normal(random) * 0.02F);
    state.m.push_back(normal(random) * scale * 0.2F);
    state.v.push_back(scale * scale * (1 + 0.3F * std::abs(normal(random))));
  }
  return state;
}

void take_step(TrainedState& state, const Hyperparameters& h, std::uint64_t seed) {
  TestRandom random(seed);
  const auto rate1 = static_cast<float>(1 - h.beta1);
  const auto keep2 = static_cast<float>(h.beta2);
  const auto gain2 = static_cast<float>(1 - h.beta2);
  for (std::size_t i = 0; i < state.x.size(); ++i) {
    const float gradient = normal(random) * std::sqrt(state.v[i]);
    state.m[i] += rate1 * (gradient - state.m[i]);
    state.v[i] = state.v[i] * keep2 + gain2 * gradient * gradient;
    const float root = std::sqrt(state.v[i]) / static_cast<float>(std::sqrt(h.bias2)) + static_cast<float>(h.epsilon);
    const float decayed = state.x[i] * static_cast<float>(1 - h.rate * h.decay);
    state.x[i] = decayed + static_cast<float>(-h.rate / h.bias1) * state.m[i] / root;
  }
}

TrainedStep train_step(std::size_t elements, const Hyperparameters& hyperparameters, std::uint64_t seed) {
  TrainedStep step{.before = trained_state(elements, seed), .after = {}};
  step.after = step.before;
  take_step(step.after, hyperparameters, seed + 1000);
  return step;
}

std::vector<std::byte> trained_bytes(const Floats& floats) {
  const ConstByteSpan bytes = std::as_bytes(std::span(floats));
  return {bytes.begin(), bytes.end()};
}

TestChunk second_moment_chunk(const TrainedStep& step) {
  return {.dtype = DType::f32,
          .data = trained_bytes(step.after.v),
          .base = trained_bytes(step.before.v),
          .more = {{InputKind::base, trained_bytes(step.before.m)}, {InputKind::peer, trained_bytes(step.after.m)}}};
}

TestChunk parameter_chunk(const TrainedStep& step) {
  return {.dtype = DType::f32,
          .data = trained_bytes(step.after.x),
          .base = trained_bytes(step.before.x),
          .more = {{InputKind::peer, trained_bytes(step.after.m)}, {InputKind::peer, trained_bytes(step.after.v)}}};
}

}  // namespace bitsnap::codec
