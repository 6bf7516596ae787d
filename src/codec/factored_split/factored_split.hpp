// Shared by both sides of the codec factored_split: spec.md.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <bitsnap/dtype.hpp>
#include <bitsnap/tensor.hpp>

#include "base/checked.hpp"
#include "codec/factored_split/factored_rows_kernel.hpp"
#include "codec/short_elements.hpp"
#include "entropy/rans.hpp"
#include "tensor/row_elements.hpp"

namespace bitsnap::codec {

// On disk: never change or reuse. Bits of the first byte of a payload; others are 0.
inline constexpr std::uint8_t kFactoredRotated = 0x01;
inline constexpr std::uint8_t kFactoredRowClasses = 0x02;
inline constexpr std::uint8_t kFactoredColumns4 = 0x04;  // at most one of the two column flags is set
inline constexpr std::uint8_t kFactoredColumns8 = 0x08;
inline constexpr std::uint8_t kFactoredFlags = 0x0f;

// Flags, shifts, base, row length, first column.
inline constexpr std::size_t kFactoredHeaderBytes = 12;

using tensor::kFewestRowElements;

// Elements that are processed together so that they stay in the cache. A multiple of a round of the lane coder.
inline constexpr std::size_t kFactoredPart = 2048;
static_assert(kFactoredPart % entropy::kRansRoundElements == 0);

[[nodiscard]] constexpr bool has_factors(DType dtype) noexcept {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32;
}

// The elements of a chunk, shortened or not. A value holds 3 to 10 bits of their mantissa.
struct FactoredFloats {
  ShortFloats floats;

  [[nodiscard]] std::size_t element_bytes() const noexcept { return floats.element_bytes(); }
  [[nodiscard]] std::size_t low_bytes() const noexcept {
    return floats.dtype == DType::f32 ? floats.mantissa_bits() / 8 : 0;
  }
  [[nodiscard]] unsigned value_mantissa_bits() const noexcept {
    return floats.mantissa_bits() - static_cast<unsigned>(8 * low_bytes());
  }
  // Whether the elements can have this many zero bits: a value must hold the rest of sign, exponent and mantissa, and
  // at least three mantissa bits for scales in eighths of an octave.
  [[nodiscard]] bool can_be() const noexcept {
    return value_mantissa_bits() >= 3 && (floats.dtype != DType::f32 || value_mantissa_bits() <= 7);
  }
};

// The number of rows that a chunk touches if its first element is in column first_column.
[[nodiscard]] constexpr std::size_t factored_rows(std::size_t elements, std::size_t row_elements,
                                                  std::size_t first_column) noexcept {
  return divide_up(first_column + elements, row_elements);
}

// Iterates over the coded elements of a chunk in pieces of one row. Rows with the scale 0 are skipped.
class RowWalk {
 public:
  struct Piece {
    std::size_t row = 0;
    std::size_t column = 0;
    std::size_t position = 0;  // of its first element in the chunk
    std::size_t count = 0;     // 0 at the end
  };

  RowWalk() = default;
  // `scales` has one scale per row.
  RowWalk(std::span<const std::uint8_t> scales, std::size_t elements, std::size_t row_elements,
          std::size_t first_column) noexcept
      : scales_(scales.data()), elements_(elements), row_elements_(row_elements), column_(first_column) {}

  // The next piece of at most `most` elements.
  [[nodiscard]] Piece next(std::size_t most) noexcept {
    while (position_ < elements_ && scales_[row_] == 0) advance(left_of_row());
    if (position_ == elements_) return {};
    const Piece piece{row_, column_, position_, std::min(most, left_of_row())};
    advance(piece.count);
    return piece;
  }

 private:
  [[nodiscard]] std::size_t left_of_row() const noexcept {
    return std::min(row_elements_ - column_, elements_ - position_);
  }
  void advance(std::size_t count) noexcept {
    position_ += count;
    column_ += count;
    if (column_ < row_elements_) return;
    column_ = 0;
    ++row_;
  }

  const std::uint8_t* scales_ = nullptr;
  std::size_t elements_ = 0;
  std::size_t row_elements_ = 1;
  std::size_t column_ = 0;
  std::size_t row_ = 0;
  std::size_t position_ = 0;
};

// The number of coded elements.
[[nodiscard]] inline std::size_t count_coded(RowWalk walk) noexcept {
  std::size_t coded = 0;
  for (auto piece = walk.next(kChunkElements); piece.count > 0; piece = walk.next(kChunkElements)) {
    coded += piece.count;
  }
  return coded;
}

}  // namespace bitsnap::codec
