// Loops that compilers vectorize at each CPU level.

#include "codec/factored_split/factored_rows_kernel.hpp"

#include "base/kernel_bits.hpp"

namespace bitsnap::codec {
namespace {

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

template <typename Element, std::size_t kLow, bool kRotated, bool kColumns>
inline void sum_loop(const std::uint8_t* elements, std::size_t count, const FactoredRange& range,
                     std::int32_t* __restrict columns, RowSums& sums) noexcept {
  const FactoredRange own = range;
  const std::int32_t finer = 1 << own.finer;
  std::uint32_t bits = 0;
  std::int32_t sum = 0;
  std::uint32_t squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto element = load_at<Element>(elements, i);
    bits |= element;
    std::uint32_t value = turned<Element, kRotated>(element);
    value >>= 8 * kLow;
    std::int32_t distance = static_cast<std::int32_t>(value) - own.middle;
    distance = distance < own.most ? distance : own.most;
    distance = distance > -own.most ? distance : -own.most;
    distance = distance * finer >> own.unit;
    sum += distance;
    squares += static_cast<std::uint32_t>(distance * distance);
    if constexpr (kColumns) columns[i] += distance;
  }
  sums.bits |= bits;
  sums.sum += sum;
  sums.squares += squares;
}

template <typename Element, std::size_t kLow, bool kRotated>
inline void measure_loop(const std::uint8_t* elements, std::size_t count, const FactoredRange& range, unsigned rough,
                         std::int16_t* __restrict distances) noexcept {
  const FactoredRange own = range;
  const std::int32_t finer = 1 << own.finer;
  const unsigned unit = own.unit + rough;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t value = turned<Element, kRotated>(load_at<Element>(elements, i));
    value >>= 8 * kLow;
    std::int32_t distance = static_cast<std::int32_t>(value) - own.middle;
    distance = distance < own.most ? distance : own.most;
    distance = distance > -own.most ? distance : -own.most;
    distances[i] = static_cast<std::int16_t>(distance * finer >> unit);
  }
}

template <typename Element, std::size_t kLow, bool kRotated>
inline void take_off_loop(const std::uint8_t* elements, std::size_t count, std::uint16_t row,
                          const std::uint16_t* columns, std::uint16_t* __restrict values,
                          std::uint8_t* __restrict low) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const Element element = turned<Element, kRotated>(load_at<Element>(elements, i));
    if constexpr (kLow == 1) low[i] = static_cast<std::uint8_t>(element);
    if constexpr (kLow == 2) {
      const auto lower = static_cast<std::uint16_t>(element);
      store_at(low, i, lower);
    }
    values[i] = static_cast<std::uint16_t>(static_cast<std::uint16_t>(element >> (8 * kLow)) - row - columns[i]);
  }
  static_cast<void>(low);
}

template <typename Element, std::size_t kLow, bool kRotated>
inline void put_on_loop(const std::uint16_t* values, const std::uint8_t* low, std::size_t count, std::uint16_t row,
                        const std::uint16_t* columns, std::uint8_t* __restrict elements) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const auto upper = static_cast<std::uint16_t>(values[i] + row + columns[i]);
    Element element = upper;
    if constexpr (kLow == 1) element = static_cast<Element>(element << 8 | low[i]);
    if constexpr (kLow == 2) element = static_cast<Element>(element << 16 | load_at<std::uint16_t>(low, i));
    element = turned_back<Element, kRotated>(element);
    store_at(elements, i, element);
  }
  static_cast<void>(low);
}

// Calls body<Element, low bytes, rotated>().
template <typename Body>
inline void by_geometry(const FactoredGeometry& geometry, Body&& body) noexcept {
  const auto by_rotation = [&]<typename Element, std::size_t kLow>() {
    return geometry.rotated ? body.template operator()<Element, kLow, true>()
                            : body.template operator()<Element, kLow, false>();
  };
  if (geometry.element_bytes == 2) return by_rotation.template operator()<std::uint16_t, 0>();
  return geometry.low_bytes == 1 ? by_rotation.template operator()<std::uint32_t, 1>()
                                 : by_rotation.template operator()<std::uint32_t, 2>();
}

void sum_row(const std::uint8_t* elements, std::size_t count, const FactoredGeometry& geometry,
             const FactoredRange& range, std::int32_t* columns, RowSums& sums) noexcept {
  by_geometry(geometry, [&]<typename Element, std::size_t kLow, bool kRotated>() {
    if (columns != nullptr) {
      sum_loop<Element, kLow, kRotated, true>(elements, count, range, columns, sums);
    } else {
      sum_loop<Element, kLow, kRotated, false>(elements, count, range, columns, sums);
    }
  });
}

void measure(const std::uint8_t* elements, std::size_t count, const FactoredGeometry& geometry,
             const FactoredRange& range, unsigned rough, std::int16_t* distances) noexcept {
  by_geometry(geometry, [&]<typename Element, std::size_t kLow, bool kRotated>() {
    measure_loop<Element, kLow, kRotated>(elements, count, range, rough, distances);
  });
}

std::int32_t correlate(const std::int16_t* a, const std::int16_t* b, std::size_t count) noexcept {
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += std::int32_t{a[i]} * b[i];
  return sum;
}

void take_off_scales(const std::uint8_t* elements, std::size_t count, const FactoredGeometry& geometry,
                     std::uint16_t row, const std::uint16_t* columns, std::uint16_t* values,
                     std::uint8_t* low) noexcept {
  by_geometry(geometry, [&]<typename Element, std::size_t kLow, bool kRotated>() {
    take_off_loop<Element, kLow, kRotated>(elements, count, row, columns, values, low);
  });
}

void put_on_scales(const std::uint16_t* values, const std::uint8_t* low, std::size_t count,
                   const FactoredGeometry& geometry, std::uint16_t row, const std::uint16_t* columns,
                   std::uint8_t* elements) noexcept {
  by_geometry(geometry, [&]<typename Element, std::size_t kLow, bool kRotated>() {
    put_on_loop<Element, kLow, kRotated>(values, low, count, row, columns, elements);
  });
}

}  // namespace

constinit const FactoredRowKernels FactoredRowKernels::BITSNAP_KERNEL_LEVEL = {
    codec::sum_row, codec::measure, codec::correlate, codec::take_off_scales, codec::put_on_scales};

}  // namespace bitsnap::codec
