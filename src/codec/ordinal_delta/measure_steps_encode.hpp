// The steps of a chunk's elements and of a sample of them, for both forms of ordinal_delta.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/ordinal_delta/ordinal_steps_kernel.hpp"

namespace bitsnap::codec {

// Contexts, values and (where the geometry has them) low bytes of all elements of `data`.
void measure_steps(ConstByteSpan data, ConstByteSpan base, const StepGeometry& geometry, std::uint8_t* contexts,
                   std::uint16_t* values, std::uint8_t* low) noexcept;

// The same of runs spread evenly over a chunk. Which elements are sampled depends on their number alone.
struct StepSample {
  StepGeometry geometry;  // `top` is chosen so that hardly any of the sample is above it
  std::span<std::uint8_t> contexts;
  std::span<std::uint16_t> values;
  std::span<std::uint16_t> direct;  // the same, all measured from the top
};

[[nodiscard]] Result<StepSample> sample_steps(ConstByteSpan data, ConstByteSpan base, StepGeometry geometry,
                                              Scratch& scratch);

}  // namespace bitsnap::codec
