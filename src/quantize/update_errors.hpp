// Measures how much quantized moments change the updates. docs/spec/update_step.md defines an update.
#pragma once

#include <bitsnap/quantization.hpp>

#include "base/bytes.hpp"

namespace bitsnap::quantize {

// One element in this many is measured, because its square root and two divisions take longer than everything else.
inline constexpr std::size_t kPerLookedAt = 16;

// The moments of an element, F32.
struct Moments {
  ConstByteSpan first;
  ConstByteSpan second;
};

// For elements from the start of a chunk, the same number in all spans. Any thread and floating-point mode.
[[nodiscard]] UpdateErrors update_errors(const AdamNumbers& adam, const Moments& before,
                                         const Moments& stored) noexcept;

// Adds the errors of the next part.
void merge(UpdateErrors& to, const UpdateErrors& next) noexcept;

}  // namespace bitsnap::quantize
