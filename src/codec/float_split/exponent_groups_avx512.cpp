// Elements by exponents and low bits, for AVX-512.
#include "codec/float_split/exponent_groups_kernel.hpp"

#if defined(__x86_64__)
#include "codec/float_split/exponent_groups_loop.hpp"

namespace bitsnap::codec {

std::uint32_t split_exponents_avx512(const std::uint8_t* elements, std::size_t rows, const ExponentGeometry& geometry,
                                     std::uint8_t* exponents, std::uint8_t* packed) noexcept {
  return split_by_size(elements, rows, geometry, exponents, packed);
}

void join_exponents_avx512(const std::uint8_t* exponents, const std::uint8_t* packed, std::size_t rows,
                           const ExponentGeometry& geometry, std::uint8_t* elements) noexcept {
  join_by_size(exponents, packed, rows, geometry, elements);
}

}  // namespace bitsnap::codec
#endif
