// The decoding kernels of the lane coder, which also join the elements: docs/spec/rans.md.
//
// Preconditions: every cursor is at or below `limit`, and 64 bytes are readable at `limit`; `rest` holds the lower
// bytes of all rounds and 64 readable bytes more; `out` has room for `rounds` whole rounds. No input is trusted:
// cursors are clamped to `limit` before every load, table indexes are masked, and the bytes that a round writes do not
// depend on the data.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::entropy {

inline constexpr std::size_t kDecodeLanes = 64;
inline constexpr std::size_t kDecodeGroups = 4;

// A table in the form from which kernels build their own: 16 symbol indexes in the order of their slots. Unused indexes
// repeat the last used one, so the number of starts up to a slot finds a right one.
struct RansDecodeTable {
  alignas(16) std::uint8_t symbols[16];
  alignas(16) std::uint8_t starts[16];
  alignas(16) std::uint8_t frequencies[16];
  std::uint8_t escape_index;  // this index and later ones come from the escapes; 16: no escapes
  bool single;                // all symbols are symbols[0], and none is coded
};

// A state x of lane l in group g is high[g][l] * 256 + low[g][l].
struct RansDecoding {
  alignas(64) std::uint8_t low[kDecodeGroups][kDecodeLanes];
  alignas(64) std::uint8_t high[kDecodeGroups][kDecodeLanes];
  const std::uint8_t* in[kDecodeGroups];
  const std::uint8_t* escapes;
  const std::uint8_t* limit;
};

// Elements have 1, 2 or 4 bytes: the topmost byte is the symbol, the other bytes come from `rest`. Rotated elements are
// then rotated right by one bit.
struct RansDecodeKernels {
  using Decode = void(RansDecoding& at, const RansDecodeTable& table, const std::uint8_t* rest, std::size_t rounds,
                      std::uint8_t* out) noexcept;
  Decode* decode[3][2];  // [log2(element size)][rotated]

  static const RansDecodeKernels kScalar, kAvx2, kAvx512, kNeon;
};

}  // namespace bitsnap::entropy
