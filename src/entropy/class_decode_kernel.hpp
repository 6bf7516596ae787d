// The kernels that decode values by class: docs/spec/rans.md, "Values by class".
//
// Preconditions: every context is below 32; every cursor is at or below `limit`, and 64 bytes are readable at `limit`.
// No input is trusted: cursors are clamped to `limit` before every load, table indexes are masked, and the bytes that a
// round writes do not depend on the data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "entropy/rans_decode_kernel.hpp"
#include "entropy/read_ahead.hpp"

namespace bitsnap::entropy {

// Four classes of 16 symbol indexes in the order of their slots. An index without slots repeats the nearest index
// before it that has slots, so the last index whose start is not above a slot is the slot's index.
struct ClassDecodeTable {
  alignas(64) std::uint8_t plans[64];  // by context; from 32 on, zero
  alignas(64) std::uint8_t starts[64];
  alignas(64) std::uint8_t frequencies[64];
  alignas(64) std::uint8_t symbols[64];
  alignas(64) std::uint8_t starts_ahead[4][64];  // starts of the indexes 8, 4, 2 and 1 further, for a binary search
  bool has_bits;                                 // of any plan, shift % 8 is not 0
  bool has_bytes;                                // of any plan, the shift is at least 8
  bool has_octaves;                              // any plan has octaves; has_bits and has_bytes have no meaning then
};

// A state x of lane l in group g is high[g][l] * 256 + low[g][l].
struct ClassDecoding {
  alignas(64) std::uint8_t low[kDecodeGroups][kDecodeLanes];
  alignas(64) std::uint8_t high[kDecodeGroups][kDecodeLanes];
  const std::uint8_t* in[kDecodeGroups];
  const std::uint8_t* bytes;
  const std::uint8_t* escapes;  // two bytes each
  const std::uint8_t* bits;     // bit 0 is here
  std::uint64_t bit;            // the next bit
  const std::uint8_t* limit;
};

struct ClassDecodeKernels {
  void (*decode)(ClassDecoding& at, const ClassDecodeTable& table, const std::uint8_t* contexts, std::size_t rounds,
                 std::uint16_t* values, const ReadAhead& ahead) noexcept;

  static const ClassDecodeKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::entropy
