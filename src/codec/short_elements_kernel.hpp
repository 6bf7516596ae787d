// Kernels that shorten elements and lengthen them again: docs/spec/codecs.md, "Shortened elements".
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {

struct ShortGeometry {
  std::size_t element_bytes = 0;  // 2 or 4
  std::size_t short_bytes = 0;    // of a shortened element: element_bytes, or 2 of 4
  unsigned zero_bits = 0;         // that are left out; at least 16 if 2 of 4 bytes remain
};

struct ShortElementKernels {
  // Returns the OR of the bits of all elements that were left out.
  std::uint32_t (*shorten)(const std::uint8_t* elements, std::size_t count, const ShortGeometry& geometry,
                           std::uint8_t* shortened) noexcept;

  // Restores elements with zeros for the missing bits. Excess bits are cut off.
  void (*lengthen)(const std::uint8_t* shortened, std::size_t count, const ShortGeometry& geometry,
                   std::uint8_t* elements) noexcept;

  static const ShortElementKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
