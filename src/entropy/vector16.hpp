// Vectors of 16 bytes for kernels that have to run everywhere: the GNU extension, which g++ and clang turn into the
// baseline of the machine (SSE2, NEON), or into plain arithmetic where there is none. Only what every such baseline
// has: no look-ups by lane, which are done one by one in between.
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

// Says that the bytes of a vector that was stored are read one by one from where they are. Otherwise g++ at -O3 stores
// the vector again for each of them.
template <std::size_t kSize>
[[gnu::always_inline]] inline void keep_in_memory(std::uint8_t (&bytes)[kSize]) noexcept {
  __asm__("" : "+m"(bytes));
}

// a0 b0 a1 b1 ... of the lower and of the upper halves.
[[gnu::always_inline]] inline U16x8 zip_lower(U16x8 a, U16x8 b) noexcept {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
[[gnu::always_inline]] inline U16x8 zip_upper(U16x8 a, U16x8 b) noexcept {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

// The bytes at even places of `even`, and at odd places those at even places of `odd`.
[[gnu::always_inline]] inline U8x16 join_lower_bytes(U16x8 even, U16x8 odd) noexcept {
  return bits_as<U8x16>((even & 0xff) | odd << 8);
}
// The same of the bytes at odd places.
[[gnu::always_inline]] inline U8x16 join_upper_bytes(U16x8 even, U16x8 odd) noexcept {
  return bits_as<U8x16>(even >> 8 | (odd & 0xff00));
}

// The bytes at even places of `front`, then those of `rear`.
[[gnu::always_inline]] inline U8x16 pack_lower_bytes(U16x8 front, U16x8 rear) noexcept {
  return __builtin_shufflevector(bits_as<U8x16>(front), bits_as<U8x16>(rear), 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22,
                                 24, 26, 28, 30);
}

// The lower and the upper 16 bits of eight numbers.
struct SplitNumbers {
  U16x8 lower;
  U16x8 upper;
};

// Of the eight numbers that number(0) to number(7) give. Each goes to the vector unit by itself: written to memory one
// by one and read as a vector, they would wait for each other.
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

// The upper 16 bits of the products. A loop, for neither compiler has a word for it that the other one translates well;
// both make one instruction of this one, g++ only while it is a loop.
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
