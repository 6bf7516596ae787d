// How far the updates that moments make moved with them. docs/spec/update_step.md has what an update is.
#pragma once

#include <bitsnap/quantization.hpp>

#include "base/bytes.hpp"

namespace bitsnap::quantize {

// One in so many elements is looked at: a root and two divisions for each take longer than all else.
inline constexpr std::size_t kPerLookedAt = 16;

// Both moments of an element, F32.
struct Moments {
  ConstByteSpan first;
  ConstByteSpan second;
};

// Of elements that begin at the start of a chunk, as many of all. Any thread, any mode of floats.
[[nodiscard]] UpdateErrors update_errors(const AdamNumbers& adam, const Moments& before,
                                         const Moments& stored) noexcept;

// Adds those of the part that follows.
void merge(UpdateErrors& to, const UpdateErrors& next) noexcept;

}  // namespace bitsnap::quantize
