// Reading, writing and masking elements in kernels. Buffers need no alignment; i counts elements.
//
// Headers that kernels include have internal linkage only: of an inline function with external linkage, the linker
// could keep the copy compiled for AVX-512 for all CPUs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap {
namespace {

template <typename Element>
inline Element load_at(const std::uint8_t* from, std::size_t i) noexcept {
  Element element;
  __builtin_memcpy(&element, from + i * sizeof element, sizeof element);
  return element;
}

template <typename Element>
inline void store_at(std::uint8_t* to, std::size_t i, Element element) noexcept {
  __builtin_memcpy(to + i * sizeof element, &element, sizeof element);
}

// All bits set, or none. Compilers vectorize masks at every level, but not every branch.
template <typename Bits = std::uint32_t>
inline Bits mask_of(bool condition) noexcept {
  return static_cast<Bits>(Bits{0} - static_cast<Bits>(condition));
}

}  // namespace
}  // namespace bitsnap
