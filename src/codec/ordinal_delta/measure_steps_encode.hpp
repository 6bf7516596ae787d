// The steps of a chunk's elements and of a sample of them, for both forms of ordinal_delta.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/ordinal_delta/ordinal_steps_kernel.hpp"
#include "codec/short_elements_encode.hpp"

namespace bitsnap::codec {

// A chunk whose steps are encoded: its elements and their bases, as they are.
struct StepsToEncode {
  ConstByteSpan data;
  ConstByteSpan base;
  ShortFloats floats;
  Shortener* shortener = nullptr;  // where elements are shortened

  [[nodiscard]] std::size_t count() const noexcept { return data.size() / element_size(floats.dtype); }
};

// Some of them as they are measured, shortened or not. One part is worked on at a time.
class PartToEncode {
 public:
  ConstByteSpan data;
  ConstByteSpan base;

  // For parts of so many elements.
  [[nodiscard]] Result<void> open(const StepsToEncode& steps, std::size_t most, Scratch& scratch);

  // false: there are too many exceptions.
  [[nodiscard]] bool take(std::size_t first, std::size_t count) noexcept;

 private:
  StepsToEncode steps_;
  ByteSpan short_data_;
  ByteSpan short_base_;
};

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

// Elements, shortened where `floats` are, and contexts. `data` and `base` are not shortened.
[[nodiscard]] Result<StepSample> take_sample(ConstByteSpan data, ConstByteSpan base, const ShortFloats& floats,
                                             Scratch& scratch);

// The values of a sample, as its geometry says; and direct ones.
void measure_sample(StepSample& sample) noexcept;
void measure_sample_directly(StepSample& sample) noexcept;

}  // namespace bitsnap::codec
