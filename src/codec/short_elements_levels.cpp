// Loops that compilers vectorize at each CPU level.

#include "codec/short_elements_kernel.hpp"

#include "base/kernel_bits.hpp"

namespace bitsnap::codec {
namespace {

template <typename Element, typename Short>
inline std::uint32_t shorten_loop(const std::uint8_t* elements, std::size_t count, unsigned zero_bits,
                                  std::uint8_t* __restrict shortened) noexcept {
  constexpr unsigned kTop = 8 * sizeof(Element) - 1;
  constexpr unsigned kShortTop = 8 * sizeof(Short) - 1;
  constexpr auto kMagnitude = static_cast<Element>((Element{1} << kTop) - 1);
  const unsigned shift = zero_bits;
  Element joined = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto element = load_at<Element>(elements, i);
    joined |= element;
    const auto sign = static_cast<Short>(static_cast<Short>(element >> kTop) << kShortTop);
    const auto own = static_cast<Short>(sign | static_cast<Short>((element & kMagnitude) >> shift));
    store_at(shortened, i, own);
  }
  return joined & ((std::uint32_t{1} << shift) - 1);
}

template <typename Element, typename Short>
inline void lengthen_loop(const std::uint8_t* shortened, std::size_t count, unsigned zero_bits,
                          std::uint8_t* __restrict elements) noexcept {
  constexpr unsigned kTop = 8 * sizeof(Element) - 1;
  constexpr unsigned kShortTop = 8 * sizeof(Short) - 1;
  constexpr auto kMagnitude = static_cast<Element>((Element{1} << kTop) - 1);
  const unsigned shift = zero_bits;
  for (std::size_t i = 0; i < count; ++i) {
    const auto own = load_at<Short>(shortened, i);
    // Bits at its top are shifted out or cut off.
    const auto magnitude = static_cast<Element>(static_cast<Element>(Element{own} << shift) & kMagnitude);
    const auto element = static_cast<Element>(magnitude | static_cast<Element>(Element(own >> kShortTop) << kTop));
    store_at(elements, i, element);
  }
}

std::uint32_t shorten(const std::uint8_t* elements, std::size_t count, const ShortGeometry& geometry,
                      std::uint8_t* shortened) noexcept {
  if (geometry.element_bytes == 2) {
    return shorten_loop<std::uint16_t, std::uint16_t>(elements, count, geometry.zero_bits, shortened);
  }
  return geometry.short_bytes == 2
             ? shorten_loop<std::uint32_t, std::uint16_t>(elements, count, geometry.zero_bits, shortened)
             : shorten_loop<std::uint32_t, std::uint32_t>(elements, count, geometry.zero_bits, shortened);
}

void lengthen(const std::uint8_t* shortened, std::size_t count, const ShortGeometry& geometry,
              std::uint8_t* elements) noexcept {
  if (geometry.element_bytes == 2) {
    return lengthen_loop<std::uint16_t, std::uint16_t>(shortened, count, geometry.zero_bits, elements);
  }
  return geometry.short_bytes == 2
             ? lengthen_loop<std::uint32_t, std::uint16_t>(shortened, count, geometry.zero_bits, elements)
             : lengthen_loop<std::uint32_t, std::uint32_t>(shortened, count, geometry.zero_bits, elements);
}

}  // namespace

constinit const ShortElementKernels ShortElementKernels::BITSNAP_KERNEL_LEVEL = {codec::shorten, codec::lengthen};

}  // namespace bitsnap::codec
