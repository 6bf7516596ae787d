#include "codec/gradient_step/made_gradient_testing.hpp"

#include <bit>

#include "codec/optimizer_step/trained_step_testing.hpp"

namespace bitsnap::codec {
namespace {

float shortened(float number, unsigned bits) {
  const auto mask = ~((std::uint32_t{1} << (24 - bits)) - 1);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(number) & mask);
}

}  // namespace

float made_element(GradientForm form, const GradientConstants& constants, float base, float number) {
  const auto [keep, gain, scale] = constants;
  const float gradient = scale * number;
  switch (form) {
    case GradientForm::lerp_fused: return std::fma(gain, gradient - base, base);
    case GradientForm::lerp: return base + gain * (gradient - base);
    case GradientForm::add_fused: return std::fma(gain, gradient, keep * base);
    case GradientForm::decay_fused: return std::fma(keep, base, gain * gradient);
    case GradientForm::decay_and_add: break;
  }
  return keep * base + gain * gradient;
}

namespace {

struct MadeStep {
  Floats before, after, square_before, square_after;
};

MadeStep make_step(std::size_t elements, const MadeGradient& made, float beta, std::uint64_t seed) {
  TestRandom random(seed);
  TestRandom random_square(seed + 1);
  const auto gain = static_cast<float>(std::round((1 - static_cast<double>(beta)) * 1000) / 1000);
  MadeStep step;
  float size = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    if (i % 64 == 0) size = std::ldexp(1.0F, -static_cast<int>(random.below(made.octaves)) - 12);
    const float base = static_cast<float>(random.normal()) * size * made.base_size;
    const unsigned bits = made.bits + (made.varied > 0 ? static_cast<unsigned>(random.below(made.varied + 1)) : 0);
    const bool is_zero = static_cast<float>(random.below(1000)) < 1000 * made.zeros;
    const float number = is_zero ? 0 : shortened(static_cast<float>(random.normal()) * size, bits);
    step.before.push_back(base);
    step.after.push_back(made_element(made.form, made.constants, base, number));
    const float gradient = made.constants.scale * number;
    const float square = size * size * (0.5F + static_cast<float>(random_square.below(1000)) / 1000);
    step.square_before.push_back(square);
    step.square_after.push_back(std::fma(gain * gradient, gradient, beta * square));
  }
  return step;
}

}  // namespace

TestChunk made_gradient_chunk(std::size_t elements, const MadeGradient& made, std::uint64_t seed) {
  const MadeStep step = make_step(elements, made, 0, seed);
  return {.dtype = DType::f32, .data = trained_bytes(step.after), .base = trained_bytes(step.before)};
}

TestChunk made_square_chunk(std::size_t elements, const MadeGradient& made, float beta, std::uint64_t seed) {
  const MadeStep step = make_step(elements, made, beta, seed);
  return {.dtype = DType::f32,
          .data = trained_bytes(step.square_after),
          .base = trained_bytes(step.square_before),
          .more = {{InputKind::base, trained_bytes(step.before)}, {InputKind::peer, trained_bytes(step.after)}}};
}

TestChunk made_average_chunk(std::size_t elements, const MadeGradient& made, std::size_t off, std::uint64_t seed) {
  TestRandom random(seed);
  Floats before;
  Floats weights;
  Floats after;
  for (std::size_t i = 0; i < elements; ++i) {
    before.push_back(0.02F * static_cast<float>(random.normal()));
    weights.push_back(before.back() + 0.001F * static_cast<float>(random.normal()));
    after.push_back(made_element(made.form, made.constants, before.back(), weights.back()));
    if (i % 1000 < off) after.back() = std::nextafter(after.back(), 1.0F);
  }
  return {.dtype = DType::f32,
          .data = trained_bytes(after),
          .base = trained_bytes(before),
          .more = {{InputKind::peer, trained_bytes(weights)}}};
}

}  // namespace bitsnap::codec
