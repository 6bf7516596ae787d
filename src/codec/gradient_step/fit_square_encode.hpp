// Finds the constants of the second moments of a step whose first moments are known: spec.md, "Second moments".
#pragma once

#include <optional>
#include <span>

#include "codec/gradient_step/fit_gradient_encode.hpp"
#include "codec/gradient_step/gradient_step_kernel.hpp"

namespace bitsnap::codec {

// Sampled second moments after and before a step, and the first moments before and after.
struct SampledSquares {
  std::span<const float> elements;
  std::span<const float> base;
  std::span<const float> before;
  std::span<const float> after;
};

// nullopt if the gradients do not have a fixed number of bits, or if nobody would choose such a beta. Precondition: a
// FloatMode is active.
[[nodiscard]] std::optional<SquareConstants> constants_of_square(const SampledSquares& sample,
                                                                 const FoundGradient& found) noexcept;

}  // namespace bitsnap::codec
