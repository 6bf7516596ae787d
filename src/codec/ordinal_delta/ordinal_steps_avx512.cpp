// Between floats and the steps that they moved, for AVX-512.
#include "codec/ordinal_delta/ordinal_steps_kernel.hpp"

#if defined(__x86_64__)
#include "codec/ordinal_delta/ordinal_steps_loop.hpp"

namespace bitsnap::codec {

void step_contexts_avx512(const std::uint8_t* base, std::size_t elements, const StepGeometry& geometry,
                          std::uint8_t* contexts) noexcept {
  contexts_by_size(base, elements, geometry, contexts);
}

void measure_steps_avx512(const std::uint8_t* data, const std::uint8_t* base, std::size_t elements,
                          const StepGeometry& geometry, std::uint16_t* values, std::uint8_t* low) noexcept {
  measure_by_size(data, base, elements, geometry, values, low);
}

void move_steps_avx512(const std::uint8_t* base, const std::uint16_t* values, const std::uint8_t* low,
                       std::size_t elements, const StepGeometry& geometry, std::uint8_t* out) noexcept {
  move_by_size(base, values, low, elements, geometry, out);
}

}  // namespace bitsnap::codec
#endif
