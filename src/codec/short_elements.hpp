// Shortened elements: low bits that are zero in nearly all elements are left out, for example of floats that were
// rounded or converted. See docs/spec/codecs.md, "Shortened elements". Codecs code the rest as floats with a shorter
// mantissa.
//
// Shared by both sides: the head of such payloads, and the conversion. The functions are pure; any thread may call
// them. short_elements_encode.hpp is the writing side.
#pragma once

#include <cstddef>
#include <cstdint>

#include <bitsnap/dtype.hpp>

#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "codec/decoder.hpp"

namespace bitsnap::codec {

// The flag in the first byte of payloads with shortened elements. In codecs that use it, no other payload begins with
// it. On disk: never change or reuse.
inline constexpr std::uint8_t kShortFlag = 0x80;
// some elements have nonzero bits that are left out in the others
inline constexpr std::uint8_t kShortExceptions = 0x40;
inline constexpr std::uint8_t kShortZeroBits = 0x1f;

inline constexpr std::size_t kExceptionBytes = 8;  // place and bits of an exception
inline constexpr std::size_t kElementsPerException = 256;

[[nodiscard]] constexpr std::size_t max_exceptions(std::size_t elements) noexcept {
  return divide_up(elements, kElementsPerException);
}

[[nodiscard]] constexpr bool can_be_shortened(DType dtype) noexcept {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32;
}

// For unchanged and shortened elements. Precondition: can_be_shortened(dtype), here and below.
[[nodiscard]] constexpr unsigned mantissa_bits_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f16: return 10;
    case DType::bf16: return 7;
    default: return 23;
  }
}

struct ShortFloats {
  DType dtype = DType::opaque;
  unsigned zero_bits = 0;  // 0: elements are unchanged

  [[nodiscard]] unsigned mantissa_bits() const noexcept { return mantissa_bits_of(dtype) - zero_bits; }
  [[nodiscard]] std::size_t element_bytes() const noexcept {
    return zero_bits >= 16 ? sizeof(std::uint16_t) : element_size(dtype);
  }
};

// Writes the shortened elements, count * floats.element_bytes() bytes, and returns the OR of the bits of all elements
// that were left out. lengthen_elements() restores them with zeros.
std::uint32_t shorten_elements(ConstByteSpan elements, const ShortFloats& floats, std::byte* shortened) noexcept;
void lengthen_elements(const std::byte* shortened, const ShortFloats& floats, ByteSpan elements) noexcept;

// The head of a payload with shortened elements.
struct ShortHead {
  ShortFloats floats;
  ConstByteSpan exceptions;  // kExceptionBytes each, checked
};

[[nodiscard]] inline bool is_of_short_elements(ConstByteSpan payload) noexcept {
  return !payload.empty() && (std::to_integer<unsigned>(payload[0]) & kShortFlag) != 0;
}

// Leaves `cursor` after the head. Precondition: the payload has shortened elements.
[[nodiscard]] Result<ShortHead> read_short_head(ByteCursor& cursor, const ChunkContext& context);

// Sets the bits of the exceptions in lengthened elements.
void put_exceptions(const ShortHead& head, ByteSpan elements) noexcept;

}  // namespace bitsnap::codec
