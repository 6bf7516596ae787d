// The encoding kernels of values by class: docs/spec/rans.md, "Values by class". One per CPU level; all give the same
// bytes.
//
// They allocate nothing and run from the last value to the first, so that streams are written downwards. Preconditions:
// every context is below 32; below every cursor of `out` there is room for a byte for each value of its group, below
// `bytes` for a byte, below `escapes` for two and below `bits` for seven bits for each value, and for 64 bytes more.
// Inputs and outputs must not overlap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "entropy/rans_encode_kernel.hpp"
#include "entropy/read_ahead.hpp"

namespace bitsnap::entropy {

// Four classes of 16 indexes: a symbol's own, or that of its class's escape where it has no slots.
struct ClassEncodeTable {
  alignas(64) std::uint8_t plans[64];    // by context; from 32 on, zero
  alignas(64) std::uint8_t indexes[64];  // by class and symbol
  alignas(64) std::uint8_t starts[64];
  alignas(64) std::uint8_t frequencies[64];      // 1 to 255
  alignas(64) std::uint8_t reciprocals_low[64];  // rans_reciprocal(), lower and upper byte
  alignas(64) std::uint8_t reciprocals_high[64];
  bool has_bits;     // of any plan the lower three bits of its shift are not zero
  bool has_bytes;    // of any plan the shift is eight or more
  bool has_octaves;  // any plan has octaves; the two above count for nothing then
};

// A state x of lane l in group g is high[g][l] * 256 + low[g][l].
struct ClassEncoding {
  alignas(64) std::uint8_t low[kEncodeGroups][kEncodeLanes];
  alignas(64) std::uint8_t high[kEncodeGroups][kEncodeLanes];
  std::uint8_t* out[kEncodeGroups];
  std::uint8_t* bytes;
  std::uint8_t* escapes;  // two bytes each
  std::uint8_t* bits;     // below the last whole byte
  std::uint64_t pending;  // the lower pending_bits go there next; what is above them was written
  unsigned pending_bits;  // 0 to 7
};

struct ClassEncodeKernels {
  void (*encode)(ClassEncoding& at, const ClassEncodeTable& table, const std::uint8_t* contexts,
                 const std::uint16_t* values, std::size_t steps, const ReadAhead& ahead) noexcept;

  static const ClassEncodeKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::entropy
