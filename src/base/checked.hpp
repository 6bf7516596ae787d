// Arithmetic on sizes from a file or a caller. Overflow gives no value instead of wrapping around.
#pragma once

#include <concepts>
#include <optional>

namespace bitsnap {

template <std::unsigned_integral T>
[[nodiscard]] constexpr std::optional<T> checked_add(T a, T b) noexcept {
  T sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

template <std::unsigned_integral T>
[[nodiscard]] constexpr std::optional<T> checked_multiply(T a, T b) noexcept {
  T product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// Precondition: b > 0. Cannot overflow.
template <std::unsigned_integral T>
[[nodiscard]] constexpr T divide_up(T a, T b) noexcept {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace bitsnap
