// Small functions that all lanes use.
#pragma once

#include <bit>
#include <cstdint>

#include "gpu/lane_jobs.hpp"

namespace bitsnap::gpu {

[[nodiscard]] BITSNAP_DEVICE inline unsigned count_bits(std::uint64_t bits) noexcept {
#ifdef __CUDA_ARCH__
  return static_cast<unsigned>(__popcll(bits));
#else
  return static_cast<unsigned>(std::popcount(bits));
#endif
}

// The lowest set bit. Precondition: there is one.
[[nodiscard]] BITSNAP_DEVICE inline unsigned lowest_bit(std::uint64_t bits) noexcept {
#ifdef __CUDA_ARCH__
  return static_cast<unsigned>(__ffsll(static_cast<long long>(bits))) - 1;
#else
  return static_cast<unsigned>(std::countr_zero(bits));
#endif
}

// The number of lanes in the mask that come before this one.
[[nodiscard]] BITSNAP_DEVICE inline unsigned rank_of(unsigned lane, std::uint64_t mask) noexcept {
  return count_bits(mask & ((std::uint64_t{1} << lane) - 1));
}

template <unsigned kBytes>
[[nodiscard]] BITSNAP_DEVICE inline std::uint32_t load_element(const std::uint8_t* at) noexcept {
  if constexpr (kBytes == 2) {
    return *reinterpret_cast<const std::uint16_t*>(at);
  } else {
    return *reinterpret_cast<const std::uint32_t*>(at);
  }
}

template <unsigned kBytes>
BITSNAP_DEVICE inline void store_element(std::uint8_t* at, std::uint32_t element) noexcept {
  if constexpr (kBytes == 2) {
    *reinterpret_cast<std::uint16_t*>(at) = static_cast<std::uint16_t>(element);
  } else {
    *reinterpret_cast<std::uint32_t*>(at) = element;
  }
}

// The sign moves from the top to the bottom, and back.
template <unsigned kBytes>
[[nodiscard]] BITSNAP_DEVICE constexpr std::uint32_t rotate_left(std::uint32_t element) noexcept {
  if constexpr (kBytes == 2) return (element << 1 | element >> 15) & 0xffff;
  return element << 1 | element >> 31;
}
template <unsigned kBytes>
[[nodiscard]] BITSNAP_DEVICE constexpr std::uint32_t rotate_right(std::uint32_t element) noexcept {
  if constexpr (kBytes == 2) return (element >> 1 | element << 15) & 0xffff;
  return element >> 1 | element << 31;
}

template <typename Warp>
BITSNAP_DEVICE inline void copy_bytes(const Warp& warp, const std::uint8_t* from, std::uint64_t size,
                                      std::uint8_t* to) {
  warp.each([&](unsigned lane, unsigned) {
    for (std::uint64_t i = lane; i < size; i += kLanes) to[i] = from[i];
  });
}

}  // namespace bitsnap::gpu
