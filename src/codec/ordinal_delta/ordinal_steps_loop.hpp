// Element by element: between floats and the steps that they moved, for the compiler to make vectors of at each CPU
// level. Everything here has internal linkage, so that no other file can be given code it cannot run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "codec/ordinal_delta/ordinal_steps_kernel.hpp"

namespace bitsnap::codec {
namespace {

template <typename Element>
inline Element element_at(const std::uint8_t* from, std::size_t i) noexcept {
  Element element;
  __builtin_memcpy(&element, from + i * sizeof(Element), sizeof(Element));
  return element;
}

// All bits the topmost one.
template <typename Element>
inline Element sign_of(Element x) noexcept {
  constexpr int kTop = 8 * static_cast<int>(sizeof(Element)) - 1;
  return static_cast<Element>(static_cast<std::make_signed_t<Element>>(x) >> kTop);
}

// Sign and magnitude to two's complement and back: the ordinal mapping (tensor/ordinal.hpp) up to an offset, which no
// difference sees.
template <typename Element>
inline Element reflected(Element x) noexcept {
  return static_cast<Element>(x ^ static_cast<Element>(sign_of(x) >> 1));
}

template <typename Element>
inline std::uint8_t context_of(Element base, const StepGeometry& geometry) noexcept {
  const auto exponent = static_cast<std::uint8_t>(base >> geometry.mantissa_bits & geometry.exponent_mask);
  const auto distance =
      static_cast<std::uint8_t>(exponent > geometry.top ? 0 : static_cast<std::uint8_t>(geometry.top - exponent));
  return distance < geometry.last_context ? distance : geometry.last_context;
}

template <typename Element>
inline Element zigzag_of(Element element, Element base) noexcept {
  const auto steps = static_cast<Element>(reflected(element) - reflected(base));
  return static_cast<Element>(static_cast<Element>(steps << 1) ^ sign_of(steps));
}

// The element so many steps (modulo all there are) from its base.
template <typename Element>
inline Element stepped(Element base, Element steps) noexcept {
  return reflected(static_cast<Element>(reflected(base) + steps));
}

template <typename Element>
inline Element moved(Element base, Element zigzag) noexcept {
  return stepped(base, static_cast<Element>((zigzag >> 1) ^ static_cast<Element>(0 - (zigzag & 1))));
}

template <typename Element>
inline void contexts_loop(const std::uint8_t* base, std::size_t elements, const StepGeometry& geometry,
                          std::uint8_t* contexts) noexcept {
  const StepGeometry own = geometry;
  for (std::size_t i = 0; i < elements; ++i) contexts[i] = context_of(element_at<Element>(base, i), own);
}

template <typename Element, std::size_t kLow>
inline void measure_loop(const std::uint8_t* data, const std::uint8_t* base, std::size_t elements,
                         std::uint16_t* values, std::uint8_t* low) noexcept {
  for (std::size_t i = 0; i < elements; ++i) {
    std::uint32_t zigzag = zigzag_of(element_at<Element>(data, i), element_at<Element>(base, i));
    if constexpr (kLow == 1) low[i] = static_cast<std::uint8_t>(zigzag);
    if constexpr (kLow == 2) {
      const auto two = static_cast<std::uint16_t>(zigzag);
      __builtin_memcpy(low + 2 * i, &two, 2);
    }
    zigzag >>= 8 * kLow;
    if constexpr (sizeof(Element) > 2) zigzag = zigzag < kMostSteps ? zigzag : kMostSteps;
    values[i] = static_cast<std::uint16_t>(zigzag);
  }
  static_cast<void>(low);
}

template <typename Element, std::size_t kLow>
inline void move_loop(const std::uint8_t* base, const std::uint16_t* values, const std::uint8_t* low,
                      std::size_t elements, std::uint8_t* out) noexcept {
  for (std::size_t i = 0; i < elements; ++i) {
    std::uint32_t zigzag = std::uint32_t{values[i]} << (8 * kLow);
    if constexpr (kLow == 1) zigzag |= low[i];
    if constexpr (kLow == 2) zigzag |= element_at<std::uint16_t>(low, i);
    const Element element = moved(element_at<Element>(base, i), static_cast<Element>(zigzag));
    __builtin_memcpy(out + i * sizeof(Element), &element, sizeof(Element));
  }
  static_cast<void>(low);
}

inline void contexts_by_size(const std::uint8_t* base, std::size_t elements, const StepGeometry& geometry,
                             std::uint8_t* contexts) noexcept {
  switch (geometry.element_bytes) {
    case 1: return contexts_loop<std::uint8_t>(base, elements, geometry, contexts);
    case 2: return contexts_loop<std::uint16_t>(base, elements, geometry, contexts);
    default: return contexts_loop<std::uint32_t>(base, elements, geometry, contexts);
  }
}

inline void measure_by_size(const std::uint8_t* data, const std::uint8_t* base, std::size_t elements,
                            const StepGeometry& geometry, std::uint16_t* values, std::uint8_t* low) noexcept {
  switch (geometry.element_bytes) {
    case 1: return measure_loop<std::uint8_t, 0>(data, base, elements, values, low);
    case 2: return measure_loop<std::uint16_t, 0>(data, base, elements, values, low);
    default: break;
  }
  switch (geometry.low_bytes) {
    case 0: return measure_loop<std::uint32_t, 0>(data, base, elements, values, low);
    case 1: return measure_loop<std::uint32_t, 1>(data, base, elements, values, low);
    default: return measure_loop<std::uint32_t, 2>(data, base, elements, values, low);
  }
}

inline void move_by_size(const std::uint8_t* base, const std::uint16_t* values, const std::uint8_t* low,
                         std::size_t elements, const StepGeometry& geometry, std::uint8_t* out) noexcept {
  switch (geometry.element_bytes) {
    case 1: return move_loop<std::uint8_t, 0>(base, values, low, elements, out);
    case 2: return move_loop<std::uint16_t, 0>(base, values, low, elements, out);
    default: break;
  }
  switch (geometry.low_bytes) {
    case 0: return move_loop<std::uint32_t, 0>(base, values, low, elements, out);
    case 1: return move_loop<std::uint32_t, 1>(base, values, low, elements, out);
    default: return move_loop<std::uint32_t, 2>(base, values, low, elements, out);
  }
}

}  // namespace
}  // namespace bitsnap::codec
