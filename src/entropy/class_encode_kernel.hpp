// The kernels that encode values by class: docs/spec/rans.md, "Values by class".
//
// They run from the last value to the first, so they write streams downwards. Preconditions: every context is below 32;
// below every cursor there is room for 64 bytes, plus for each value: a byte of its group's stream at `out`, a byte at
// `bytes`, two at `escapes` and seven bits at `bits`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "entropy/rans_encode_kernel.hpp"
#include "entropy/read_ahead.hpp"

namespace bitsnap::entropy {

// Four classes of 16 symbol indexes. A symbol without slots has the index of its class's escape.
struct ClassEncodeTable {
  alignas(64) std::uint8_t plans[64];    // by context; from 32 on, zero
  alignas(64) std::uint8_t indexes[64];  // by class and symbol
  alignas(64) std::uint8_t starts[64];
  alignas(64) std::uint8_t frequencies[64];      // 1 to 255
  alignas(64) std::uint8_t reciprocals_low[64];  // rans_reciprocal(), lower and upper byte
  alignas(64) std::uint8_t reciprocals_high[64];
  bool has_bits;     // of any plan, shift % 8 is not 0
  bool has_bytes;    // of any plan, the shift is at least 8
  bool has_octaves;  // any plan has octaves; has_bits and has_bytes have no meaning then
};

// A state x of lane l in group g is high[g][l] * 256 + low[g][l].
struct ClassEncoding {
  alignas(64) std::uint8_t low[kEncodeGroups][kEncodeLanes];
  alignas(64) std::uint8_t high[kEncodeGroups][kEncodeLanes];
  std::uint8_t* out[kEncodeGroups];
  std::uint8_t* bytes;
  std::uint8_t* escapes;  // two bytes each
  std::uint8_t* bits;     // below the last whole byte
  std::uint64_t pending;  // its lower pending_bits are written next; the bits above them were written already
  unsigned pending_bits;  // 0 to 7
};

struct ClassEncodeKernels {
  void (*encode)(ClassEncoding& at, const ClassEncodeTable& table, const std::uint8_t* contexts,
                 const std::uint16_t* values, std::size_t rounds, const ReadAhead& ahead) noexcept;

  static const ClassEncodeKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::entropy
