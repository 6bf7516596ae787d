// The deltas of a chunk and of a sample of it, for all forms of ordinal_delta.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "base/spread_runs.hpp"
#include "codec/ordinal_delta/ordinal_deltas_kernel.hpp"
#include "codec/short_elements_encode.hpp"

namespace bitsnap::codec {

// A chunk to encode: its elements and their bases, not shortened.
struct DeltasToEncode {
  ConstByteSpan data;
  ConstByteSpan base;
  ShortFloats floats;
  Shortener* shortener = nullptr;  // set if elements are shortened

  [[nodiscard]] std::size_t count() const noexcept { return data.size() / element_size(floats.dtype); }
};

// A part of the chunk in the form in which it is measured, shortened or not.
class PartToEncode {
 public:
  ConstByteSpan data;
  ConstByteSpan base;

  // For parts of at most `most` elements.
  [[nodiscard]] Result<void> open(const DeltasToEncode& deltas, std::size_t most, Scratch& scratch);

  // Returns false if there are too many exceptions.
  [[nodiscard]] bool take(std::size_t first, std::size_t count) noexcept;

 private:
  DeltasToEncode deltas_;
  ByteSpan short_data_;
  ByteSpan short_base_;
};

// Computes contexts, values and, if the geometry has them, low bytes of all elements of `data`.
void measure_deltas(ConstByteSpan data, ConstByteSpan base, const DeltaGeometry& geometry, std::uint8_t* contexts,
                    std::uint16_t* values, std::uint8_t* low) noexcept;

// A run is one or two cache lines, aligned to one; the runs give a hundred values for each symbol of every class.
inline constexpr SpreadRuns kDeltaRuns{.count = 64, .elements = 128, .alignment = 16};

// The sample kDeltaRuns of a chunk, or all of a smaller one, and its measures. Valid while its Scratch frame is open.
struct DeltaSample {
  DeltaGeometry geometry;  // hardly any sampled exponent is above `top`
  ConstByteSpan data;
  ConstByteSpan base;
  std::span<std::uint8_t> contexts;
  std::span<std::uint16_t> values;
  std::span<std::uint16_t> direct;  // the same elements, all measured from the top
  std::span<std::uint8_t> low;      // low bytes, which are not used
};

// The sampled elements, shortened as `floats` says, and their contexts. `data` and `base` are not shortened.
[[nodiscard]] Result<DeltaSample> take_sample(ConstByteSpan data, ConstByteSpan base, const ShortFloats& floats,
                                              Scratch& scratch);

// Computes the values and the direct values of a sample.
void measure_sample(DeltaSample& sample) noexcept;
void measure_sample_directly(DeltaSample& sample) noexcept;

}  // namespace bitsnap::codec
