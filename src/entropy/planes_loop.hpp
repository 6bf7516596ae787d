// Loops over single elements: the whole scalar kernel, and the tails of the vector kernels. Everything has internal
// linkage, because each level compiles its own copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "entropy/planes_kernel.hpp"

namespace bitsnap::entropy {
namespace {

// base + offset, or null without a base.
template <Change kChange>
inline const std::uint8_t* part(const std::uint8_t* base, std::size_t offset) noexcept {
  return kChange == Change::with_base ? base + offset : base;
}

template <std::size_t kSize>
struct ElementOf;
template <>
struct ElementOf<2> {
  using Type = std::uint16_t;
};
template <>
struct ElementOf<4> {
  using Type = std::uint32_t;
};
template <>
struct ElementOf<8> {
  using Type = std::uint64_t;
};

template <typename Element>
inline Element load_element(const std::uint8_t* from) noexcept {
  Element element;
  __builtin_memcpy(&element, from, sizeof(Element));
  return element;
}

template <std::size_t kSize, Change kChange>
inline void split_loop(const std::uint8_t* in, const std::uint8_t* base, std::size_t begin, std::size_t end,
                       std::uint8_t* const* planes) noexcept {
  using Element = typename ElementOf<kSize>::Type;
  std::uint8_t* to[kSize];
  for (std::size_t k = 0; k < kSize; ++k) to[k] = planes[k];
  for (std::size_t i = begin; i < end; ++i) {
    std::uint64_t element = load_element<Element>(in + i * kSize);
    if constexpr (kChange == Change::with_base) element ^= load_element<Element>(base + i * kSize);
    if constexpr (kChange == Change::rotate) element = (element << 1) | (element >> (8 * kSize - 1));
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kSize; ++k) to[k][i] = static_cast<std::uint8_t>(element >> (8 * k));
  }
}

template <std::size_t kSize, Change kChange>
inline void merge_loop(const std::uint8_t* const* planes, const std::uint8_t* base, std::size_t begin, std::size_t end,
                       std::uint8_t* out) noexcept {
  using Element = typename ElementOf<kSize>::Type;
  const std::uint8_t* from[kSize];
  for (std::size_t k = 0; k < kSize; ++k) from[k] = planes[k];
  for (std::size_t i = begin; i < end; ++i) {
    std::uint64_t bits = 0;
#pragma GCC unroll 8
    for (std::size_t k = 0; k < kSize; ++k) bits |= std::uint64_t{from[k][i]} << (8 * k);
    if constexpr (kChange == Change::with_base) bits ^= load_element<Element>(base + i * kSize);
    if constexpr (kChange == Change::rotate) bits = (bits >> 1) | (bits << (8 * kSize - 1));
    const Element element = static_cast<Element>(bits);
    __builtin_memcpy(out + i * kSize, &element, kSize);
  }
}

// A kernel: vector code for whole groups of elements, which returns the number of elements done, and a loop for the
// rest.
template <typename Vectors, std::size_t kSize, Change kChange>
void split(const std::uint8_t* in, const std::uint8_t* base, std::size_t elements,
           std::uint8_t* const* planes) noexcept {
  const std::size_t done = Vectors::template split<kSize, kChange>(in, base, elements, planes);
  split_loop<kSize, kChange>(in, base, done, elements, planes);
}

template <typename Vectors, std::size_t kSize, Change kChange>
void merge(const std::uint8_t* const* planes, const std::uint8_t* base, std::size_t elements,
           std::uint8_t* out) noexcept {
  const std::size_t done = Vectors::template merge<kSize, kChange>(planes, base, elements, out);
  merge_loop<kSize, kChange>(planes, base, done, elements, out);
}

template <typename V>
constexpr PlaneKernels plane_kernels() noexcept {
  using enum Change;
  return {.split = {{split<V, 2, none>, split<V, 2, with_base>, split<V, 2, rotate>},
                    {split<V, 4, none>, split<V, 4, with_base>, split<V, 4, rotate>},
                    {split<V, 8, none>, split<V, 8, with_base>, split<V, 8, rotate>}},
          .merge = {{merge<V, 2, none>, merge<V, 2, with_base>, merge<V, 2, rotate>},
                    {merge<V, 4, none>, merge<V, 4, with_base>, merge<V, 4, rotate>},
                    {merge<V, 8, none>, merge<V, 8, with_base>, merge<V, 8, rotate>}}};
}

}  // namespace
}  // namespace bitsnap::entropy
