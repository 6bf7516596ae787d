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

inline constexpr std::size_t kSampleElements = 8192;

// Some elements of a chunk, at most kSampleElements, in runs spread evenly over it, and how they are measured. Which
// they are depends on their number alone. Lives as long as the frame of the Scratch that it was made in.
struct StepSample {
  StepGeometry geometry;  // `top` is chosen so that hardly any of the sample is above it
  ConstByteSpan data;
  ConstByteSpan base;
  std::span<std::uint8_t> contexts;
  std::span<std::uint16_t> values;
  std::span<std::uint16_t> direct;  // the same, all measured from the top
  std::span<std::uint8_t> low;      // of either; nobody asks for them
};

// Elements and contexts; `geometry` is that of their dtype.
[[nodiscard]] Result<StepSample> take_sample(ConstByteSpan data, ConstByteSpan base, const StepGeometry& geometry,
                                             Scratch& scratch);

// The values of a sample, as its geometry says; and direct ones.
void measure_sample(StepSample& sample) noexcept;
void measure_sample_directly(StepSample& sample) noexcept;

}  // namespace bitsnap::codec
