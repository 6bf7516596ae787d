// Processes a row in vectors of its width, which the compiler maps to the registers of each CPU level.

#include "codec/float_split/exponent_groups_kernel.hpp"

#include "base/kernel_bits.hpp"

namespace bitsnap::codec {
namespace {

using Words [[gnu::vector_size(4 * kGroupColumns)]] = std::uint32_t;
using Halves [[gnu::vector_size(2 * kGroupColumns)]] = std::uint16_t;

constexpr unsigned kWordBits = 32;

// Prefetches for reading, or for writing (1), because the loop does little work per byte. The address may lie beyond
// the buffer.
template <int kWrite>
inline void ask_for(const std::uint8_t* at) noexcept {
  constexpr std::uintptr_t kAhead = 4096;
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(at) + kAhead), kWrite);
}

// The element type of a row vector.
template <typename Row>
struct RowOf;
template <>
struct RowOf<Words> {
  using Element = std::uint32_t;
};
template <>
struct RowOf<Halves> {
  using Element = std::uint16_t;
};

// Conversions between bytes and elements use plain loops, which compilers vectorize better than row vectors.
template <typename Element>
inline void take_exponents(const std::uint8_t* elements, std::size_t count, unsigned mantissa_bits,
                           std::uint8_t* __restrict exponents) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    exponents[i] = static_cast<std::uint8_t>(load_at<Element>(elements, i) >> mantissa_bits);
  }
}

template <typename Element>
inline void put_exponents(const std::uint8_t* exponents, std::size_t count, unsigned mantissa_bits,
                          std::uint8_t* __restrict elements) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    store_at(elements, i, static_cast<Element>(Element{exponents[i]} << mantissa_bits));
  }
}

// `Row` is a vector of one row of elements.
template <typename Row>
inline std::uint32_t split_rows(const std::uint8_t* elements, std::size_t rows, const ExponentGeometry& geometry,
                                std::uint8_t* exponents, std::uint8_t* packed) noexcept {
  using Element = typename RowOf<Row>::Element;
  constexpr unsigned kTop = 8 * sizeof(Element) - 1;
  const unsigned zero_bits = geometry.zero_bits;
  const unsigned low_bits = geometry.low_bits();
  const std::uint32_t mantissa = (std::uint32_t{1} << (geometry.mantissa_bits - zero_bits)) - 1;
  const unsigned signs = geometry.has_signs ? 1 : 0;
  take_exponents<Element>(elements, rows * kGroupColumns, geometry.mantissa_bits, exponents);
  Words joined{};
  Words pending{};
  unsigned used = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    Row own;
    __builtin_memcpy(&own, elements + row * sizeof own, sizeof own);
    const Words wide = __builtin_convertvector(own, Words);
    joined |= wide;
    const Words lows = (wide >> zero_bits & mantissa) << signs | (wide >> kTop & signs);
    pending |= lows << used;
    used += low_bits;
    if (used < kWordBits) continue;
    __builtin_memcpy(packed, &pending, sizeof pending);
    packed += sizeof pending;
    used -= kWordBits;
    pending = lows >> (low_bits - used);
  }
  if (used > 0) __builtin_memcpy(packed, &pending, sizeof pending);
  std::uint32_t all = 0;
  for (std::size_t i = 0; i < kGroupColumns; ++i) all |= joined[i];
  return all & ((std::uint32_t{1} << zero_bits) - 1);
}

template <typename Row>
inline void join_rows(const std::uint8_t* exponents, const std::uint8_t* packed, std::size_t rows,
                      const ExponentGeometry& geometry, std::uint8_t* elements) noexcept {
  using Element = typename RowOf<Row>::Element;
  constexpr unsigned kTop = 8 * sizeof(Element) - 1;
  const unsigned zero_bits = geometry.zero_bits;
  const unsigned low_bits = geometry.low_bits();
  const std::uint32_t mask = (std::uint32_t{1} << low_bits) - 1;
  const unsigned signs = geometry.has_signs ? 1 : 0;
  alignas(64) std::uint8_t joined[kGroupElements * sizeof(Element)];
  put_exponents<Element>(exponents, rows * kGroupColumns, geometry.mantissa_bits, joined);
  // Every row is read from two words, also if it lies in one, so that no branch is needed.
  for (std::size_t row = 0, bit = 0; row < rows; ++row, bit += low_bits) {
    const std::uint8_t* const at = packed + bit / kWordBits * sizeof(Words);
    const unsigned below = bit % kWordBits;
    ask_for<0>(at);
    ask_for<1>(elements + row * sizeof(Row));
    Words front;
    Words rear;
    __builtin_memcpy(&front, at, sizeof front);
    __builtin_memcpy(&rear, at + sizeof front, sizeof rear);
    const Words lows = (front >> below | rear << 1 << (kWordBits - 1 - below)) & mask;
    Row own;
    __builtin_memcpy(&own, joined + row * sizeof own, sizeof own);
    own |= __builtin_convertvector(lows >> signs << zero_bits | (lows & signs) << kTop, Row);
    __builtin_memcpy(elements + row * sizeof own, &own, sizeof own);
  }
}

std::uint32_t split(const std::uint8_t* elements, std::size_t rows, const ExponentGeometry& geometry,
                    std::uint8_t* exponents, std::uint8_t* packed) noexcept {
  return geometry.element_bytes == 2 ? split_rows<Halves>(elements, rows, geometry, exponents, packed)
                                     : split_rows<Words>(elements, rows, geometry, exponents, packed);
}

void join(const std::uint8_t* exponents, const std::uint8_t* packed, std::size_t rows, const ExponentGeometry& geometry,
          std::uint8_t* elements) noexcept {
  return geometry.element_bytes == 2 ? join_rows<Halves>(exponents, packed, rows, geometry, elements)
                                     : join_rows<Words>(exponents, packed, rows, geometry, elements);
}

}  // namespace

constinit const ExponentKernels ExponentKernels::BITSNAP_KERNEL_LEVEL = {codec::split, codec::join};

}  // namespace bitsnap::codec
