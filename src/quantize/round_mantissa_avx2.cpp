// Rounding to fewer bits of the mantissa, for AVX2.
#include "quantize/round_mantissa_kernel.hpp"

#if defined(__x86_64__)
#include "quantize/round_mantissa_loop.hpp"

namespace bitsnap::quantize {

std::size_t round_mantissa_avx2(MantissaFormat format, const std::uint8_t* from, std::size_t elements, unsigned kept,
                                std::uint8_t* to) noexcept {
  return round_by_format(format, from, elements, kept, to);
}

std::size_t keep_weights_avx2(const std::uint8_t* from, const std::uint8_t* had, const std::uint8_t* have,
                              std::size_t elements, unsigned kept, std::uint8_t* to) noexcept {
  return keep_weights_loop(from, had, have, elements, kept, to);
}

}  // namespace bitsnap::quantize
#endif
