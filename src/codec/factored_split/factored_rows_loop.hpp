// Element by element: between elements and their values, for the compiler to make vectors of at each CPU level.
// Everything here has internal linkage, so that no other file can be given code it cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/factored_split/factored_rows_kernel.hpp"

namespace bitsnap::codec {
namespace {

template <typename Element>
inline Element element_at(const std::uint8_t* from, std::size_t i) noexcept {
  Element element;
  __builtin_memcpy(&element, from + i * sizeof(Element), sizeof(Element));
  return element;
}

template <typename Element, bool kRotated>
inline Element turned(Element x) noexcept {
  constexpr int kTop = 8 * static_cast<int>(sizeof(Element)) - 1;
  return kRotated ? static_cast<Element>(static_cast<Element>(x << 1) | static_cast<Element>(x >> kTop)) : x;
}

template <typename Element, bool kRotated>
inline Element turned_back(Element x) noexcept {
  constexpr int kTop = 8 * static_cast<int>(sizeof(Element)) - 1;
  return kRotated ? static_cast<Element>(static_cast<Element>(x >> 1) | static_cast<Element>(x << kTop)) : x;
}

constexpr unsigned kUpperHalf = 16;

template <typename Element, bool kRotated, bool kColumns>
inline void sum_loop(const std::uint8_t* elements, std::size_t count, const FactoredRange& range,
                     std::int32_t* __restrict columns, RowSums& sums) noexcept {
  const FactoredRange own = range;
  std::uint32_t bits = 0;
  std::int32_t sum = 0;
  std::uint32_t squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto element = element_at<Element>(elements, i);
    bits |= element;
    std::uint32_t value = turned<Element, kRotated>(element);
    if constexpr (sizeof(Element) > 2) value >>= kUpperHalf;
    std::int32_t distance = static_cast<std::int32_t>(value) - own.middle;
    distance = distance < own.most ? distance : own.most;
    distance = distance > -own.most ? distance : -own.most;
    distance >>= own.unit;
    sum += distance;
    squares += static_cast<std::uint32_t>(distance * distance);
    if constexpr (kColumns) columns[i] += distance;
  }
  sums.bits |= bits;
  sums.sum += sum;
  sums.squares += squares;
}

template <typename Element, bool kRotated>
inline void take_off_loop(const std::uint8_t* elements, std::size_t count, std::uint16_t row,
                          const std::uint16_t* columns, std::uint16_t* __restrict values,
                          std::uint8_t* __restrict low) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const Element element = turned<Element, kRotated>(element_at<Element>(elements, i));
    if constexpr (sizeof(Element) > 2) {
      const auto lower = static_cast<std::uint16_t>(element);
      __builtin_memcpy(low + 2 * i, &lower, 2);
      values[i] = static_cast<std::uint16_t>(static_cast<std::uint16_t>(element >> kUpperHalf) - row - columns[i]);
    } else {
      values[i] = static_cast<std::uint16_t>(element - row - columns[i]);
    }
  }
  static_cast<void>(low);
}

template <typename Element, bool kRotated>
inline void put_on_loop(const std::uint16_t* values, const std::uint8_t* low, std::size_t count, std::uint16_t row,
                        const std::uint16_t* columns, std::uint8_t* __restrict elements) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const auto upper = static_cast<std::uint16_t>(values[i] + row + columns[i]);
    Element element = upper;
    if constexpr (sizeof(Element) > 2) {
      element = static_cast<Element>(element << kUpperHalf | element_at<std::uint16_t>(low, i));
    }
    element = turned_back<Element, kRotated>(element);
    __builtin_memcpy(elements + i * sizeof(Element), &element, sizeof(Element));
  }
  static_cast<void>(low);
}

// Calls body<Element, rotated>.
template <typename Body>
inline void by_geometry(const FactoredGeometry& geometry, Body&& body) noexcept {
  if (geometry.element_bytes == 2) {
    return geometry.rotated ? body.template operator()<std::uint16_t, true>()
                            : body.template operator()<std::uint16_t, false>();
  }
  return geometry.rotated ? body.template operator()<std::uint32_t, true>()
                          : body.template operator()<std::uint32_t, false>();
}

inline void sum_by_geometry(const std::uint8_t* elements, std::size_t count, const FactoredGeometry& geometry,
                            const FactoredRange& range, std::int32_t* columns, RowSums& sums) noexcept {
  by_geometry(geometry, [&]<typename Element, bool kRotated>() {
    if (columns != nullptr) {
      sum_loop<Element, kRotated, true>(elements, count, range, columns, sums);
    } else {
      sum_loop<Element, kRotated, false>(elements, count, range, columns, sums);
    }
  });
}

inline void take_off_by_geometry(const std::uint8_t* elements, std::size_t count, const FactoredGeometry& geometry,
                                 std::uint16_t row, const std::uint16_t* columns, std::uint16_t* values,
                                 std::uint8_t* low) noexcept {
  by_geometry(geometry, [&]<typename Element, bool kRotated>() {
    take_off_loop<Element, kRotated>(elements, count, row, columns, values, low);
  });
}

inline void put_on_by_geometry(const std::uint16_t* values, const std::uint8_t* low, std::size_t count,
                               const FactoredGeometry& geometry, std::uint16_t row, const std::uint16_t* columns,
                               std::uint8_t* elements) noexcept {
  by_geometry(geometry, [&]<typename Element, bool kRotated>() {
    put_on_loop<Element, kRotated>(values, low, count, row, columns, elements);
  });
}

}  // namespace
}  // namespace bitsnap::codec
