// The part of a chunk that stands for all of it while its codec is chosen: 16 runs of 1,024 elements, spread evenly.
// Which elements are taken depends on their number alone, so that the choice is the same everywhere
// (docs/decisions/0002-choice-per-chunk.md).
//
// Pure functions; any thread may call them.
#pragma once

#include <cstddef>
#include <vector>

#include "base/scratch.hpp"
#include "plan/candidates.hpp"

namespace bitsnap::plan {

// A run is long enough for the tables of block coders to settle. All runs are a sixteenth of a full chunk, which bounds
// the cost of choosing.
inline constexpr std::size_t kSampleRuns = 16;
inline constexpr std::size_t kRunElements = 1024;
inline constexpr std::size_t kSampleElements = kSampleRuns * kRunElements;

// Smaller chunks are judged whole.
[[nodiscard]] constexpr bool is_sampled(std::size_t elements) noexcept { return elements > 2 * kSampleElements; }

struct ChunkSample {
  ConstByteSpan data;
  Surroundings around;  // with the same elements of the inputs, and without a place in rows

  std::vector<codec::Input> step;  // the memory of around.step
};

// Precondition: is_sampled(). The sample lies in `scratch`.
[[nodiscard]] Result<ChunkSample> take_sample(ConstByteSpan data, DType dtype, const Surroundings& around,
                                              Scratch& scratch);

// A quick look at a chunk examines this many elements: 8 for each of the 256 values of a byte.
inline constexpr std::size_t kExaminedElements = 2048;

// How many bytes of the examined elements are the same as in `base`; 0 if that is empty. Precondition as below.
[[nodiscard]] std::uint32_t count_same_bytes(DType dtype, ConstByteSpan data, ConstByteSpan base) noexcept;

// Whether the mantissas of floats look random, so that only sign and exponent can be coded, and whether they changed
// since the base by arithmetic rather than in a few bits. Codecs for floats are then smaller than general ones.
// Precondition: is_sampled(); `base` is empty or as long as `data`.
[[nodiscard]] bool has_random_mantissas(DType dtype, ConstByteSpan data, ConstByteSpan base) noexcept;

}  // namespace bitsnap::plan
