#include "codec/optimizer_step/trained_step_testing.hpp"

#include <bit>
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

float to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

std::vector<std::byte> upper_halves(ConstByteSpan bytes) {
  std::vector<std::byte> halves;
  for (std::size_t i = 2; i < bytes.size(); i += 4) halves.insert(halves.end(), {bytes[i], bytes[i + 1]});
  return halves;
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

// In the order of torch's AdamW. Each assignment is a tensor that torch makes.
void take_rounded_step(TrainedState& state, const Hyperparameters& h, std::uint64_t seed, bool fused) {
  TestRandom random(seed);
  const auto to_tensor = [fused](float x) { return fused ? x : to_bf16(x); };
  for (std::size_t i = 0; i < state.x.size(); ++i) {
    const float gradient = to_bf16(normal(random) * std::sqrt(state.v[i]));
    const float decayed = to_tensor(state.x[i] * static_cast<float>(1 - h.rate * h.decay));
    const float m = to_tensor(state.m[i] + static_cast<float>(1 - h.beta1) * (gradient - state.m[i]));
    const float kept = to_tensor(state.v[i] * static_cast<float>(h.beta2));
    const float v = to_tensor(kept + static_cast<float>(1 - h.beta2) * gradient * gradient);
    const float divided = to_tensor(to_tensor(std::sqrt(v)) / static_cast<float>(std::sqrt(h.bias2)));
    const float root = to_tensor(divided + static_cast<float>(h.epsilon));
    state.x[i] = to_bf16(decayed - static_cast<float>(h.rate / h.bias1) * m / root);
    state.m[i] = to_bf16(m);
    state.v[i] = to_bf16(v);
  }
}

TrainedState rounded_state(TrainedState state) {
  for (Floats* floats : {&state.x, &state.m, &state.v}) {
    for (float& element : *floats) element = to_bf16(element);
  }
  return state;
}

TrainedStep train_rounded_step(std::size_t elements, const Hyperparameters& hyperparameters, std::uint64_t seed,
                               bool fused) {
  TrainedStep step{.before = rounded_state(trained_state(elements, seed)), .after = {}};
  step.after = step.before;
  take_rounded_step(step.after, hyperparameters, seed + 1000, fused);
  return step;
}

TestChunk as_bf16(const TestChunk& chunk) {
  TestChunk halves = chunk;
  halves.dtype = DType::bf16;
  halves.data = upper_halves(chunk.data);
  halves.base = upper_halves(chunk.base);
  for (TestChunk::More& more : halves.more) more.bytes = upper_halves(more.bytes);
  return halves;
}

std::vector<std::byte> bf16_bytes(const Floats& floats) { return upper_halves(trained_bytes(floats)); }

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
