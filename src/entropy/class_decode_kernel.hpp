// The decoding kernels of values by class: docs/spec/rans.md, "Values by class". One per CPU level; all give the same
// values and the same verdict.
//
// They allocate nothing. Preconditions: every context is below 32; every cursor is at or below `limit`, and 64 bytes
// are readable at `limit`. Nothing that is read is trusted: cursors are held to `limit` before every load, what is
// looked up is in registers or masked, and what a step writes does not depend on the data. Inputs and outputs must not
// overlap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "entropy/rans_decode_kernel.hpp"
#include "entropy/read_ahead.hpp"

namespace bitsnap::entropy {

// Four classes of 16 ranks in the order of their slots. Ranks without slots repeat the nearest before them that has
// some, so that the last rank whose start is not above a slot is that slot's.
struct ClassDecodeTable {
  alignas(64) std::uint8_t plans[64];  // by context; from 32 on, zero
  alignas(64) std::uint8_t starts[64];
  alignas(64) std::uint8_t frequencies[64];
  alignas(64) std::uint8_t symbols[64];
  alignas(64) std::uint8_t starts_ahead[4][64];  // starts 8, 4, 2 and 1 places further, for a search in four steps
  bool has_bits;                                 // of any plan the lower three bits of its shift are not zero
  bool has_bytes;                                // of any plan the shift is eight or more
  bool has_octaves;                              // any plan has octaves; the two above count for nothing then
};

// A state x of lane l in group g is high[g][l] * 256 + low[g][l].
struct ClassDecoding {
  alignas(64) std::uint8_t low[kDecodeGroups][kDecodeLanes];
  alignas(64) std::uint8_t high[kDecodeGroups][kDecodeLanes];
  const std::uint8_t* in[kDecodeGroups];
  const std::uint8_t* bytes;
  const std::uint8_t* escapes;  // two bytes each
  const std::uint8_t* bits;     // the place of bit 0
  std::uint64_t bit;            // the next
  const std::uint8_t* limit;
};

struct ClassDecodeKernels {
  void (*decode)(ClassDecoding& at, const ClassDecodeTable& table, const std::uint8_t* contexts, std::size_t steps,
                 std::uint16_t* values, const ReadAhead& ahead) noexcept;

  static const ClassDecodeKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::entropy
