// The decoding kernels of the lane coder, fused with putting elements together: docs/spec/rans.md. One per CPU level;
// all give the same bytes and the same verdict.
//
// They allocate nothing. Preconditions: every cursor is at or below `limit`, and 64 bytes are readable at `limit`;
// `rest` holds what a step has of it, and 64 bytes more are readable behind that; `out` holds `steps` whole steps.
// Nothing that is read is trusted: cursors are held to `limit` before every load, table indexes are in registers or
// masked, and what a step writes does not depend on the data. Inputs and output must not overlap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::entropy {

inline constexpr std::size_t kDecodeLanes = 64;
inline constexpr std::size_t kDecodeGroups = 4;

// A table in the form that kernels make theirs from: 16 ranks in the order of their slots. Ranks that are not in use
// repeat the last one that is, so that counting the starts up to a slot finds a right one.
struct RansDecodeTable {
  alignas(16) std::uint8_t symbols[16];
  alignas(16) std::uint8_t starts[16];
  alignas(16) std::uint8_t frequencies[16];
  std::uint8_t escape_rank;  // from this rank on, the symbol comes from the escapes; 16: never
  bool single;               // symbols[0] alone, and nothing is coded
};

// A state x of lane l in group g is high[g][l] * 256 + low[g][l].
struct RansDecoding {
  alignas(64) std::uint8_t low[kDecodeGroups][kDecodeLanes];
  alignas(64) std::uint8_t high[kDecodeGroups][kDecodeLanes];
  const std::uint8_t* in[kDecodeGroups];
  const std::uint8_t* escapes;
  const std::uint8_t* limit;
};

// Elements have 1, 2 or 4 bytes: `rest` has all of each but the topmost, which is the symbol; where elements are
// rotated, the element is what that gives rotated right by one bit.
struct RansDecodeKernels {
  using Decode = void(RansDecoding& at, const RansDecodeTable& table, const std::uint8_t* rest, std::size_t steps,
                      std::uint8_t* out) noexcept;
  Decode* decode[3][2];  // by the logarithm of the element's bytes, and by whether elements are rotated

  static const RansDecodeKernels kScalar, kAvx2, kAvx512, kNeon;
};

}  // namespace bitsnap::entropy
