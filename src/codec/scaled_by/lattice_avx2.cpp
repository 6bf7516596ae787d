// Between moments and the multiples of a step that they are, for AVX2.
#include "codec/scaled_by/lattice_kernel.hpp"

#if defined(__x86_64__)
#include "codec/scaled_by/lattice_loop.hpp"

namespace bitsnap::codec {

void nearest_multiples_avx2(const std::uint8_t* floats, const std::uint8_t* squares, std::size_t elements,
                            const LatticeScale& scale, float share, std::int16_t* multiples) noexcept {
  nearest_loop(floats, squares, elements, scale, share, multiples);
}

bool measure_multiples_avx2(const std::uint8_t* floats, const std::uint8_t* squares, const std::int16_t* expected,
                            std::size_t elements, const LatticeScale& scale, std::uint16_t* values) noexcept {
  return measure_loop(floats, squares, expected, elements, scale, values);
}

bool put_multiples_avx2(const std::uint8_t* squares, const std::int16_t* expected, const std::uint16_t* values,
                        std::size_t elements, const LatticeScale& scale, std::uint8_t* out) noexcept {
  return put_loop(squares, expected, values, elements, scale, out);
}

}  // namespace bitsnap::codec
#endif
