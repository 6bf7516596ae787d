// The ordinal mapping: an element's bits become an unsigned integer with the order of the elements.
//
// It is a bijection on all bit patterns: -0 and +0 are distinct neighbours, and NaN payloads are kept, at both ends.
// The difference of two ordinals is the ULP distance for floats and the plain distance for integers.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>

#include <bitsnap/dtype.hpp>

namespace bitsnap::tensor {

// How the bits of a dtype are interpreted.
enum class OrdinalKind : std::uint8_t {
  unsigned_integer,  // unchanged; also opaque, boolean and complex parts, whose order has no meaning
  signed_integer,    // two's complement
  floating,          // sign and magnitude
};

[[nodiscard]] constexpr OrdinalKind ordinal_kind(DType dtype) noexcept {
  switch (dtype) {
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64: return OrdinalKind::signed_integer;
    case DType::f8_e4m3:
    case DType::f8_e5m2:
    case DType::f16:
    case DType::bf16:
    case DType::f32:
    case DType::f64: return OrdinalKind::floating;
    default: return OrdinalKind::unsigned_integer;
  }
}

template <std::unsigned_integral T>
[[nodiscard]] constexpr T to_ordinal(T bits, OrdinalKind kind) noexcept {
  constexpr T kSign = static_cast<T>(T{1} << (std::numeric_limits<T>::digits - 1));
  if (kind == OrdinalKind::unsigned_integer) return bits;
  if (kind == OrdinalKind::signed_integer) return static_cast<T>(bits ^ kSign);
  return static_cast<T>((bits & kSign) != 0 ? ~bits : bits | kSign);
}

template <std::unsigned_integral T>
[[nodiscard]] constexpr T from_ordinal(T ordinal, OrdinalKind kind) noexcept {
  constexpr T kSign = static_cast<T>(T{1} << (std::numeric_limits<T>::digits - 1));
  if (kind == OrdinalKind::unsigned_integer) return ordinal;
  if (kind == OrdinalKind::signed_integer) return static_cast<T>(ordinal ^ kSign);
  return static_cast<T>((ordinal & kSign) != 0 ? ordinal ^ kSign : ~ordinal);
}

// The distance of two elements, in either order.
template <std::unsigned_integral T>
[[nodiscard]] constexpr T ordinal_distance(T a_bits, T b_bits, OrdinalKind kind) noexcept {
  const T a = to_ordinal(a_bits, kind);
  const T b = to_ordinal(b_bits, kind);
  return static_cast<T>(a > b ? a - b : b - a);
}

}  // namespace bitsnap::tensor
