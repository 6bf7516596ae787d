// Between elements and what they are without low bits that are zero: docs/spec/codecs.md, "Shortened elements". One per
// CPU level; all give the same numbers.
//
// Kernels: they allocate nothing and cannot fail. Buffers need no alignment; outputs must not overlap inputs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {

struct ShortGeometry {
  std::size_t element_bytes = 0;  // 2 or 4
  std::size_t short_bytes = 0;    // of a shortened element: as many, or 2 of 4
  unsigned zero_bits = 0;         // that are left out; 16 or more where 2 bytes of 4 are
};

struct ShortElementKernels {
  // Returns the bits that were left out, of all elements joined by OR.
  std::uint32_t (*shorten)(const std::uint8_t* elements, std::size_t count, const ShortGeometry& geometry,
                           std::uint8_t* shortened) noexcept;

  // The elements again, with zeros for what was left out. What does not fit an element is cut off.
  void (*lengthen)(const std::uint8_t* shortened, std::size_t count, const ShortGeometry& geometry,
                   std::uint8_t* elements) noexcept;

  static const ShortElementKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
