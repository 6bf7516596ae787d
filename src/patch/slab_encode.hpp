// The writing side of a slab: docs/spec/patch.md, "Slabs".
#pragma once

#include <cstdint>
#include <vector>

#include <bitsnap/error.hpp>

#include "base/scratch.hpp"
#include "patch/slab_payload.hpp"

namespace bitsnap::patch {

struct EncodedSlab {
  std::vector<std::byte> payload;  // empty: nothing changed
  std::uint64_t expected = 0;      // the hash of the base's slab
  std::uint64_t result = 0;
};

// Precondition: `weights` and `base` have the same dtype and pieces.
[[nodiscard]] Result<void> encode_slab(const SlabMemory& weights, const SlabMemory& base, Scratch& scratch,
                                       EncodedSlab& to);

// The changes in a sample of a stream. `most_of_1024`: in the run of 1,024 elements with most changes.
struct SampledChanges {
  std::uint64_t elements = 0;
  std::uint64_t changed = 0;
  std::uint32_t most_of_1024 = 0;
};
// The size of slabs for a stream with such changes.
[[nodiscard]] unsigned choose_slab_bits(DType dtype, const SampledChanges& sample) noexcept;

}  // namespace bitsnap::patch
