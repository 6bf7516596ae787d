// Measuring what became of elements, for AVX2.
#include "quantize/error_kernel.hpp"

#if defined(__x86_64__)
#include "quantize/error_loop.hpp"

namespace bitsnap::quantize {

void add_errors_avx2(const std::uint8_t* before, const std::uint8_t* after, std::size_t elements,
                     ErrorLanes& lanes) noexcept {
  add_errors_loop(before, after, elements, lanes);
}

void widen_avx2(bool is_bf16, const std::uint8_t* halves, std::size_t elements, std::uint8_t* floats) noexcept {
  widen_loop(is_bf16, halves, elements, floats);
}

}  // namespace bitsnap::quantize
#endif
