// Reads shortened elements, and what both sides share: docs/spec/codecs.md, "Shortened elements".
#include "codec/short_elements.hpp"

#include <cstring>

#include "base/cpu_dispatch.hpp"
#include "codec/payload_checks.hpp"
#include "codec/short_elements_kernel.hpp"

namespace bitsnap::codec {
namespace {

ShortGeometry short_geometry(const ShortFloats& floats) noexcept {
  return {.element_bytes = element_size(floats.dtype),
          .short_bytes = floats.element_bytes(),
          .zero_bits = floats.zero_bits};
}

// Places must ascend, and bits must be within those left out.
Result<void> check_exceptions(ConstByteSpan exceptions, const ShortFloats& floats, std::size_t elements) {
  std::size_t least = 0;
  for (std::size_t at = 0; at < exceptions.size(); at += kExceptionBytes) {
    const std::size_t place = load_le<std::uint32_t>(exceptions.data() + at);
    const auto bits = load_le<std::uint32_t>(exceptions.data() + at + sizeof(std::uint32_t));
    if (place < least || place >= elements) {
      return corrupt("shortened elements: exception at index {}, expected at least {} and below {}", place, least,
                     elements);
    }
    if (bits == 0 || bits >> floats.zero_bits != 0) {
      return corrupt("shortened elements: an exception has the bits {}, expected some of the lowest {} bits", bits,
                     floats.zero_bits);
    }
    least = place + 1;
  }
  return {};
}

}  // namespace

std::uint32_t shorten_elements(ConstByteSpan elements, const ShortFloats& floats, std::byte* shortened) noexcept {
  return kernels<ShortElementKernels>().shorten(reinterpret_cast<const std::uint8_t*>(elements.data()),
                                                elements.size() / element_size(floats.dtype), short_geometry(floats),
                                                reinterpret_cast<std::uint8_t*>(shortened));
}

void lengthen_elements(const std::byte* shortened, const ShortFloats& floats, ByteSpan elements) noexcept {
  kernels<ShortElementKernels>().lengthen(reinterpret_cast<const std::uint8_t*>(shortened),
                                          elements.size() / element_size(floats.dtype), short_geometry(floats),
                                          reinterpret_cast<std::uint8_t*>(elements.data()));
}

Result<ShortHead> read_short_head(ByteCursor& cursor, const ChunkContext& context) {
  BITSNAP_ASSIGN(const auto first, cursor.read<std::uint8_t>("shortened elements: bits left out"));
  const unsigned zero_bits = first & kShortZeroBits;
  const bool has_exceptions = (first & kShortExceptions) != 0;
  const unsigned most = can_be_shortened(context.dtype) ? mantissa_bits_of(context.dtype) : 0;
  if ((first & ~(kShortFlag | kShortExceptions | kShortZeroBits)) != 0 || zero_bits == 0 || zero_bits > most) {
    return corrupt("shortened elements: the first byte is {}, expected 1 to {} bits left out for {}", first, most,
                   dtype_name(context.dtype));
  }
  ShortHead head{.floats = {.dtype = context.dtype, .zero_bits = zero_bits}, .exceptions = {}};
  if (!has_exceptions) return head;
  BITSNAP_ASSIGN(const std::uint32_t count, cursor.read<std::uint32_t>("shortened elements: number of exceptions"));
  if (count == 0 || count > max_exceptions(context.elements)) {
    return corrupt("shortened elements: {} exceptions, expected 1 to {}", count, max_exceptions(context.elements));
  }
  BITSNAP_ASSIGN(head.exceptions,
                 cursor.take(std::uint64_t{count} * kExceptionBytes, "shortened elements: exceptions"));
  BITSNAP_TRY(check_exceptions(head.exceptions, head.floats, context.elements));
  return head;
}

void put_exceptions(const ShortHead& head, ByteSpan elements) noexcept {
  const std::size_t element_bytes = element_size(head.floats.dtype);
  for (std::size_t at = 0; at < head.exceptions.size(); at += kExceptionBytes) {
    std::byte* const element =
        elements.data() + load_le<std::uint32_t>(head.exceptions.data() + at) * std::size_t{element_bytes};
    for (std::size_t k = 0; k < element_bytes; ++k) {
      element[k] |= head.exceptions[at + sizeof(std::uint32_t) + k];
    }
  }
}

}  // namespace bitsnap::codec
