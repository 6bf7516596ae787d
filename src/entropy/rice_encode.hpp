// Rice-coded numbers, the writing side: src/codec/ordinal_delta/spec.md, "Sparse". rice.hpp is the reading side.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "base/bytes.hpp"
#include "entropy/rice.hpp"

namespace bitsnap::entropy {

[[nodiscard]] constexpr std::uint64_t rice_bits(std::uint32_t number, unsigned parameter, unsigned width) noexcept {
  const std::uint32_t zeros = number >> parameter;
  return zeros < kRiceEscapeZeros ? std::uint64_t{zeros} + 1 + parameter : std::uint64_t{kRiceEscapeZeros} + width;
}

struct RiceChoice {
  unsigned parameter = 0;
  std::uint64_t bits = 0;  // of all numbers with this parameter
};

// The best of the three parameters around the ideal one for a geometric distribution. Precondition: all numbers fit
// `width` bits, at most kMaxRiceWidth.
[[nodiscard]] inline RiceChoice choose_rice(std::span<const std::uint32_t> numbers, unsigned width) noexcept {
  if (numbers.empty()) return {};
  std::uint64_t sum = 0;
  for (const std::uint32_t number : numbers) sum += number;
  const auto middle = static_cast<unsigned>(std::bit_width(sum / numbers.size()));
  const unsigned last = std::min(middle + 1, width - 1);
  RiceChoice best{.parameter = 0, .bits = std::numeric_limits<std::uint64_t>::max()};
  for (unsigned parameter = middle > 2 ? middle - 2 : 0; parameter <= last; ++parameter) {
    std::uint64_t bits = 0;
    for (const std::uint32_t number : numbers) bits += rice_bits(number, parameter, width);
    if (bits < best.bits) best = {.parameter = parameter, .bits = bits};
  }
  return best;
}

// The writer may overwrite this many bytes after its output.
inline constexpr std::size_t kRiceWritableBehind = 8;

class RiceWriter {
 public:
  explicit RiceWriter(std::byte* out) noexcept : out_(out) {}

  void put_bits(std::uint64_t bits, unsigned count) noexcept {  // at most 56
    pending_ |= bits << count_;
    count_ += count;
    store_le(out_, pending_);
    const unsigned bytes = count_ / 8;
    out_ += bytes;
    pending_ = bytes == 8 ? 0 : pending_ >> (8 * bytes);
    count_ %= 8;
  }

  void put(std::uint32_t number, unsigned parameter, unsigned width) noexcept {
    const std::uint32_t zeros = number >> parameter;
    if (zeros >= kRiceEscapeZeros) {
      put_bits(std::uint64_t{number} << kRiceEscapeZeros, kRiceEscapeZeros + width);
    } else {
      const std::uint64_t low = number & ((std::uint64_t{1} << parameter) - 1);
      put_bits((low << 1 | 1) << zeros, zeros + 1 + parameter);
    }
  }

  // The end of the last begun byte.
  [[nodiscard]] const std::byte* end() const noexcept { return out_ + (count_ > 0 ? 1 : 0); }

 private:
  std::byte* out_;
  std::uint64_t pending_ = 0;
  unsigned count_ = 0;  // bits of pending_, 0 to 7 between calls
};

}  // namespace bitsnap::entropy
