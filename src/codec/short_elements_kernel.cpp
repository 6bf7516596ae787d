// Elements without low bits that are zero, for the baseline of every machine.
#include "codec/short_elements_kernel.hpp"

#include "codec/short_elements_loop.hpp"

namespace bitsnap::codec {

std::uint32_t shorten_scalar(const std::uint8_t* elements, std::size_t count, const ShortGeometry& geometry,
                             std::uint8_t* shortened) noexcept {
  return shorten_by_size(elements, count, geometry, shortened);
}

void lengthen_scalar(const std::uint8_t* shortened, std::size_t count, const ShortGeometry& geometry,
                     std::uint8_t* elements) noexcept {
  lengthen_by_size(shortened, count, geometry, elements);
}

}  // namespace bitsnap::codec
