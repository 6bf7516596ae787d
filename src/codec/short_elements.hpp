// Elements without low bits that are zero in all of them, or nearly: docs/spec/codecs.md, "Shortened elements". Floats
// that were rounded, or were of another dtype once. Codecs code what is left as floats with so much less of a mantissa.
//
// Both sides of what payloads of shortened elements begin with, and between elements and shortened ones. Functions here
// are pure and may be called from any thread. What only the writing side does is in short_elements_encode.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include <bitsnap/dtype.hpp>

#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "codec/decoder.hpp"

namespace bitsnap::codec {

// On disk: never change or reuse. The first byte of a payload whose elements are shortened; no codec that has such has
// others that begin with the flag.
inline constexpr std::uint8_t kShortFlag = 0x80;
inline constexpr std::uint8_t kShortExceptions = 0x40;  // some elements have bits where others have zeros
inline constexpr std::uint8_t kShortZeroBits = 0x1f;

inline constexpr std::size_t kExceptionBytes = 8;  // place and bits of an exception
inline constexpr std::size_t kElementsPerException = 256;

[[nodiscard]] constexpr std::size_t max_exceptions(std::size_t elements) noexcept {
  return divide_up(elements, kElementsPerException);
}

[[nodiscard]] constexpr bool can_be_shortened(DType dtype) noexcept {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32;
}

// Of elements, and of shortened ones. Precondition: can_be_shortened(dtype), here and below.
[[nodiscard]] constexpr unsigned mantissa_bits_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f16: return 10;
    case DType::bf16: return 7;
    default: return 23;
  }
}

struct ShortFloats {
  DType dtype = DType::opaque;
  unsigned zero_bits = 0;  // 0: elements are as they are

  [[nodiscard]] unsigned mantissa_bits() const noexcept { return mantissa_bits_of(dtype) - zero_bits; }
  [[nodiscard]] std::size_t element_bytes() const noexcept {
    return zero_bits >= 16 ? sizeof(std::uint16_t) : element_size(dtype);
  }
};

// Writes the shortened elements, count * floats.element_bytes() bytes, and returns the bits that were left out, of all
// elements joined by OR; and the other way, with zeros for them.
std::uint32_t shorten_elements(ConstByteSpan elements, const ShortFloats& floats, std::byte* shortened) noexcept;
void lengthen_elements(const std::byte* shortened, const ShortFloats& floats, ByteSpan elements) noexcept;

// What a payload of shortened elements begins with.
struct ShortHead {
  ShortFloats floats;
  ConstByteSpan exceptions;  // kExceptionBytes each, checked
};

[[nodiscard]] inline bool is_of_short_elements(ConstByteSpan payload) noexcept {
  return !payload.empty() && (std::to_integer<unsigned>(payload[0]) & kShortFlag) != 0;
}

// Leaves `cursor` behind it. Precondition: the payload is one of shortened elements.
[[nodiscard]] Result<ShortHead> read_short_head(ByteCursor& cursor, const ChunkContext& context);

// Puts the exceptions' bits into elements that have zeros there.
void put_exceptions(const ShortHead& head, ByteSpan elements) noexcept;

}  // namespace bitsnap::codec
