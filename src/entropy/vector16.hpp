// 16-byte vectors for kernels that run everywhere. g++ and clang turn this GNU extension into the machine's baseline
// (SSE2, NEON) or into plain arithmetic. It has only operations that all baselines have; look-ups by lane are done one
// by one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::entropy {

using U8x16 [[gnu::vector_size(16)]] = std::uint8_t;
using S16x8 [[gnu::vector_size(16)]] = std::int16_t;
using U16x8 [[gnu::vector_size(16)]] = std::uint16_t;
using U32x4 [[gnu::vector_size(16)]] = std::uint32_t;
using U64x2 [[gnu::vector_size(16)]] = std::uint64_t;

template <typename To, typename From>
[[gnu::always_inline]] inline To bits_as(From from) noexcept {
  return __builtin_bit_cast(To, from);
}

template <typename Vector>
[[gnu::always_inline]] inline Vector load16(const std::uint8_t* from) noexcept {
  Vector vector;
  __builtin_memcpy(&vector, from, sizeof vector);
  return vector;
}

template <typename Vector>
[[gnu::always_inline]] inline void store16(std::uint8_t* to, Vector vector) noexcept {
  __builtin_memcpy(to, &vector, sizeof vector);
}

// Tells the compiler that the bytes of a stored vector are read one by one from memory. Without it, g++ at -O3 stores
// the vector again for each byte.
template <std::size_t kSize>
[[gnu::always_inline]] inline void keep_in_memory(std::uint8_t (&bytes)[kSize]) noexcept {
  __asm__("" : "+m"(bytes));
}

// a0 b0 a1 b1 ... of the lower halves; zip_upper of the upper halves.
[[gnu::always_inline]] inline U16x8 zip_lower(U16x8 a, U16x8 b) noexcept {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
[[gnu::always_inline]] inline U16x8 zip_upper(U16x8 a, U16x8 b) noexcept {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

// The even bytes of `even` at even places, and the even bytes of `odd` at odd places.
[[gnu::always_inline]] inline U8x16 join_lower_bytes(U16x8 even, U16x8 odd) noexcept {
  return bits_as<U8x16>((even & 0xff) | odd << 8);
}
// The same with the odd bytes.
[[gnu::always_inline]] inline U8x16 join_upper_bytes(U16x8 even, U16x8 odd) noexcept {
  return bits_as<U8x16>(even >> 8 | (odd & 0xff00));
}

// The even bytes of `front`, then those of `rear`.
[[gnu::always_inline]] inline U8x16 pack_lower_bytes(U16x8 front, U16x8 rear) noexcept {
  return __builtin_shufflevector(bits_as<U8x16>(front), bits_as<U8x16>(rear), 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22,
                                 24, 26, 28, 30);
}

// The lower and the upper 16 bits of eight numbers.
struct SplitNumbers {
  U16x8 lower;
  U16x8 upper;
};

// Splits number(0) to number(7). Each goes to a vector register directly; a vector load after eight separate stores
// would wait for them.
template <typename Number>
[[gnu::always_inline]] inline SplitNumbers split_numbers(const Number& number) noexcept {
  const auto pair = [&](std::size_t i) {
    const U32x4 first = {number(i), 0, 0, 0};
    const U32x4 second = {number(i + 1), 0, 0, 0};
    return bits_as<U32x4>(zip_lower(bits_as<U16x8>(first), bits_as<U16x8>(second)));
  };
  const auto front = bits_as<U64x2>(__builtin_shufflevector(pair(0), pair(2), 0, 4, 1, 5));
  const auto rear = bits_as<U64x2>(__builtin_shufflevector(pair(4), pair(6), 0, 4, 1, 5));
  return {bits_as<U16x8>(__builtin_shufflevector(front, rear, 0, 2)),
          bits_as<U16x8>(__builtin_shufflevector(front, rear, 1, 3))};
}

// The upper 16 bits of the products. g++ and clang turn this loop, and no other common form, into one instruction.
[[gnu::always_inline]] inline U16x8 multiply_upper(U16x8 a, U16x8 b) noexcept {
  std::uint16_t left[8];
  std::uint16_t right[8];
  __builtin_memcpy(left, &a, sizeof a);
  __builtin_memcpy(right, &b, sizeof b);
#pragma GCC unroll 1
  for (int i = 0; i < 8; ++i) left[i] = static_cast<std::uint16_t>(std::uint32_t{left[i]} * right[i] >> 16);
  __builtin_memcpy(&a, left, sizeof a);
  return a;
}

}  // namespace bitsnap::entropy
