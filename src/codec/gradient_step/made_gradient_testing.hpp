// Moments before and after a step with gradients of few significant bits, for tests.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "codec/coding_testing.hpp"
#include "codec/gradient_step/gradient_step_kernel.hpp"
#include "codec/trained_like_testing.hpp"

namespace bitsnap::codec {

struct MadeGradient {
  GradientForm form = GradientForm::lerp_fused;
  GradientConstants constants = {.keep = 0.9F, .gain = 0.1F, .scale = 1};
  unsigned bits = 8;       // significant bits of the numbers
  unsigned varied = 0;     // up to so many bits more
  float zeros = 0;         // the share of elements without a gradient
  float base_size = 0.4F;  // of the gradients' size
  unsigned octaves = 5;    // of the sizes of rows
};

// std::fma and the operations of the form, one by one.
[[nodiscard]] float made_element(GradientForm form, const GradientConstants& constants, float base, float number);

// A chunk after the step, with its base. Sizes differ by rows of 64 elements.
[[nodiscard]] TestChunk made_gradient_chunk(std::size_t elements, const MadeGradient& made, std::uint64_t seed);

// The second moment of the same step, with the first moments of made_gradient_chunk() beside it.
[[nodiscard]] TestChunk made_square_chunk(std::size_t elements, const MadeGradient& made, float beta,
                                          std::uint64_t seed);

// An average of weights after a step to weights near it; of each 1,000 elements, `off` are one ULP away.
[[nodiscard]] TestChunk made_average_chunk(std::size_t elements, const MadeGradient& made, std::size_t off,
                                           std::uint64_t seed);

}  // namespace bitsnap::codec
