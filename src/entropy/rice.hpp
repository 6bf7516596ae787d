// Rice-coded numbers: src/codec/ordinal_delta/spec.md, "Sparse". The reading side; rice_encode.hpp is the writing side.
// The reader refers to its bytes and belongs to one thread. It cannot fail: bits after the end are zero, and at_end()
// and overran() report the end.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.hpp"

namespace bitsnap::entropy {

// On disk: never change.
// this many zero bits without a one: the number in its full width follows
inline constexpr unsigned kRiceEscapeZeros = 16;
inline constexpr unsigned kMaxRiceWidth = 32;

class RiceReader {
 public:
  explicit RiceReader(ConstByteSpan bytes) noexcept : bytes_(bytes), bits_(bytes.size() * 8) {}

  // The next number. Preconditions: parameter < width <= kMaxRiceWidth.
  [[nodiscard]] std::uint32_t read(unsigned parameter, unsigned width) noexcept {
    const std::uint64_t word = peek();
    const auto zeros = static_cast<unsigned>(std::countr_zero(word | std::uint64_t{1} << kRiceEscapeZeros));
    if (zeros == kRiceEscapeZeros) {
      at_ += kRiceEscapeZeros + width;
      return static_cast<std::uint32_t>(word >> kRiceEscapeZeros & mask_of(width));
    }
    at_ += zeros + 1 + parameter;
    return static_cast<std::uint32_t>((std::uint64_t{zeros} << parameter) | (word >> (zeros + 1) & mask_of(parameter)));
  }

  [[nodiscard]] bool read_bit() noexcept {
    const bool bit = at_ < bits_ && (std::to_integer<unsigned>(bytes_[at_ / 8]) >> at_ % 8 & 1) != 0;
    ++at_;
    return bit;
  }

  // More bits were read than exist.
  [[nodiscard]] bool overran() const noexcept { return at_ > bits_; }

  // All bytes were begun, and the rest of the last byte is zero.
  [[nodiscard]] bool at_end() const noexcept {
    if (bits_ - at_ >= 8) return false;
    return at_ == bits_ || std::to_integer<unsigned>(bytes_[at_ / 8]) >> at_ % 8 == 0;
  }

 private:
  static constexpr std::uint64_t mask_of(unsigned bits) noexcept { return (std::uint64_t{1} << bits) - 1; }

  // At least 57 bits from the current position.
  [[nodiscard]] std::uint64_t peek() const noexcept {
    const std::size_t byte = static_cast<std::size_t>(at_ / 8);
    std::uint64_t word = 0;
    if (byte + sizeof word <= bytes_.size()) {
      word = load_le<std::uint64_t>(bytes_.data() + byte);
    } else if (byte < bytes_.size()) {
      std::memcpy(&word, bytes_.data() + byte, bytes_.size() - byte);
    }
    return word >> at_ % 8;
  }

  ConstByteSpan bytes_;
  std::uint64_t bits_;
  std::uint64_t at_ = 0;
};

}  // namespace bitsnap::entropy
