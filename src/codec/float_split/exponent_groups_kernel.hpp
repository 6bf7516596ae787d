// Kernels that split shortened elements into exponents and low bits, and join them: spec.md, "Shortened elements". A
// call is for rows of kGroupColumns elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {

// On disk: never change.
inline constexpr std::size_t kGroupColumns = 16;
inline constexpr std::size_t kGroupRows = 32;
inline constexpr std::size_t kGroupElements = kGroupColumns * kGroupRows;

struct ExponentGeometry {
  std::size_t element_bytes = 0;  // 2 or 4
  unsigned mantissa_bits = 0;     // including zero_bits; the exponent above has eight bits
  unsigned zero_bits = 0;         // lowest mantissa bits that are left out
  bool has_signs = false;         // signs are stored below the mantissa; otherwise they are ignored

  [[nodiscard]] constexpr unsigned low_bits() const noexcept {
    return mantissa_bits - zero_bits + (has_signs ? 1U : 0U);
  }
};

// The bytes of the low bits of `rows` rows.
[[nodiscard]] constexpr std::size_t packed_row_bytes(std::size_t rows, unsigned low_bits) noexcept {
  return (rows * low_bits + 31) / 32 * kGroupColumns * sizeof(std::uint32_t);
}

inline constexpr std::size_t kReadableBehindLows = 2 * kGroupColumns * sizeof(std::uint32_t);

struct ExponentKernels {
  // Writes packed_row_bytes() of low bits. Returns the OR of the bits of all elements that were left out.
  std::uint32_t (*split)(const std::uint8_t* elements, std::size_t rows, const ExponentGeometry& geometry,
                         std::uint8_t* exponents, std::uint8_t* packed) noexcept;

  // Reads up to kReadableBehindLows bytes after the low bits.
  void (*join)(const std::uint8_t* exponents, const std::uint8_t* packed, std::size_t rows,
               const ExponentGeometry& geometry, std::uint8_t* elements) noexcept;

  static const ExponentKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
