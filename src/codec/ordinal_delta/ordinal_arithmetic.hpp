// Ordinals, deltas and contexts of floats: spec.md, "Deltas". For kernels; everything has internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/kernel_bits.hpp"
#include "codec/ordinal_delta/ordinal_deltas_kernel.hpp"

namespace bitsnap::codec {
namespace {

template <typename Element>
struct SignedOf;
template <>
struct SignedOf<std::uint8_t> {
  using Type = std::int8_t;
};
template <>
struct SignedOf<std::uint16_t> {
  using Type = std::int16_t;
};
template <>
struct SignedOf<std::uint32_t> {
  using Type = std::int32_t;
};

// All bits equal to the topmost bit.
template <typename Element>
inline Element sign_of(Element x) noexcept {
  constexpr int kTop = 8 * static_cast<int>(sizeof(Element)) - 1;
  return static_cast<Element>(static_cast<typename SignedOf<Element>::Type>(x) >> kTop);
}

// Sign and magnitude to two's complement and back: the ordinal mapping (tensor/ordinal.hpp) up to an offset, which
// differences cancel.
template <typename Element>
inline Element reflected(Element x) noexcept {
  return static_cast<Element>(x ^ static_cast<Element>(sign_of(x) >> 1));
}

template <typename Element>
inline std::uint8_t context_of(Element base, const DeltaGeometry& geometry) noexcept {
  const auto exponent = static_cast<std::uint8_t>(base >> geometry.mantissa_bits & geometry.exponent_mask);
  const auto distance =
      static_cast<std::uint8_t>(exponent > geometry.top ? 0 : static_cast<std::uint8_t>(geometry.top - exponent));
  return distance < geometry.last_context ? distance : geometry.last_context;
}

template <typename Element>
inline Element zigzag_of(Element element, Element base) noexcept {
  const auto delta = static_cast<Element>(reflected(element) - reflected(base));
  return static_cast<Element>(static_cast<Element>(delta << 1) ^ sign_of(delta));
}

// The element at distance `delta` from its base (modulo 2^bits).
template <typename Element>
inline Element moved_by(Element base, Element delta) noexcept {
  return reflected(static_cast<Element>(reflected(base) + delta));
}

template <typename Element>
inline Element moved(Element base, Element zigzag) noexcept {
  return moved_by(base, static_cast<Element>((zigzag >> 1) ^ static_cast<Element>(0 - (zigzag & 1))));
}

template <typename Element>
inline void contexts_loop(const std::uint8_t* base, std::size_t elements, const DeltaGeometry& geometry,
                          std::uint8_t* contexts) noexcept {
  const DeltaGeometry own = geometry;
  for (std::size_t i = 0; i < elements; ++i) contexts[i] = context_of(load_at<Element>(base, i), own);
}

}  // namespace
}  // namespace bitsnap::codec
