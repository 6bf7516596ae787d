// The encoding kernels of the lane coder, which also split the elements: docs/spec/rans.md.
//
// They run from the last element to the first, so they write streams downwards. Preconditions: `in` holds `rounds`
// whole rounds of elements; `rest` has room for their lower bytes and 64 bytes more, which may be overwritten; below
// every cursor there is room for one byte per element of its group (of all groups, for the escapes) and 64 bytes more.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::entropy {

inline constexpr std::size_t kEncodeLanes = 64;
inline constexpr std::size_t kEncodeGroups = 4;
inline constexpr std::uint8_t kOutlierIndex = 15;

// A table in the form that kernels look up. A symbol's index is its distance from `first`, at most `window`, which is
// the escape's index. The symbol `outlier` has the index kOutlierIndex.
struct RansEncodeTable {
  std::uint8_t first;
  std::uint8_t window;   // 1 to 14
  std::uint8_t outlier;  // a symbol of the window if there is no outlier
  bool single;           // all elements have the symbol `first`, and none is coded
  alignas(16) std::uint8_t starts[16];
  alignas(16) std::uint8_t frequencies[16];      // 1 to 255
  alignas(16) std::uint8_t reciprocals_low[16];  // rans_reciprocal(), lower and upper byte
  alignas(16) std::uint8_t reciprocals_high[16];
};

// For dividing a state below 2^16 by its symbol's frequency with 16-bit arithmetic: the upper half of their product is
// the quotient or one less, and the remainder tells which. (It is floor(2^16 / f), but 2^16 - 1 for f = 1.)
[[nodiscard]] constexpr std::uint16_t rans_reciprocal(std::uint32_t frequency) noexcept {
  return static_cast<std::uint16_t>(frequency == 1 ? 0xffff : 0x10000 / frequency);
}

namespace {

// Prefetches the bytes that will be read later, because hardware prefetchers follow descending reads less well than
// ascending ones. The addresses may lie before the elements. 8 KiB was measured in docs/decisions/0007-lane-coder.md.
inline void prefetch_before(const std::uint8_t* in, std::size_t size) noexcept {
  constexpr std::uintptr_t kAhead = 8192;
  for (std::uintptr_t line = 0; line < size; line += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(in) - kAhead + line), 0, 3);
  }
}

}  // namespace

// A state x of lane l in group g is high[g][l] * 256 + low[g][l].
struct RansEncoding {
  alignas(64) std::uint8_t low[kEncodeGroups][kEncodeLanes];
  alignas(64) std::uint8_t high[kEncodeGroups][kEncodeLanes];
  std::uint8_t* out[kEncodeGroups];
  std::uint8_t* escapes;
};

// Elements have 1, 2 or 4 bytes. Rotated elements, of 2 or 4 bytes only, are rotated left by one bit first. The topmost
// byte is the symbol; the other bytes go to `rest`.
struct RansEncodeKernels {
  using Encode = void(RansEncoding& at, const RansEncodeTable& table, const std::uint8_t* in, std::size_t rounds,
                      std::uint8_t* rest) noexcept;
  Encode* encode[3][2];  // [log2(element size)][rotated]

  static const RansEncodeKernels kScalar, kAvx2, kAvx512, kNeon;
};

}  // namespace bitsnap::entropy
