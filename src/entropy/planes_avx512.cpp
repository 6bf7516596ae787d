// The plane kernels for AVX-512 VBMI: 64 elements at a time.
#include "entropy/planes_kernel.hpp"

#include <immintrin.h>

#include "entropy/planes_loop.hpp"

namespace bitsnap::entropy {
namespace {

constexpr std::size_t kGroup = 64;

template <std::size_t kSize, Change kChange>
inline __m512i changed(__m512i elements, const std::uint8_t* base) noexcept {
  if constexpr (kChange == Change::with_base) return _mm512_xor_si512(elements, _mm512_loadu_si512(base));
  if constexpr (kChange == Change::rotate) {
    if constexpr (kSize == 2) return _mm512_shldi_epi16(elements, elements, 1);
    if constexpr (kSize == 4) return _mm512_rol_epi32(elements, 1);
    if constexpr (kSize == 8) return _mm512_rol_epi64(elements, 1);
  }
  return elements;
}

template <std::size_t kSize, Change kChange>
inline __m512i unchanged(__m512i elements, const std::uint8_t* base) noexcept {
  if constexpr (kChange == Change::with_base) return _mm512_xor_si512(elements, _mm512_loadu_si512(base));
  if constexpr (kChange == Change::rotate) {
    if constexpr (kSize == 2) return _mm512_shldi_epi16(elements, elements, 15);
    if constexpr (kSize == 4) return _mm512_ror_epi32(elements, 1);
    if constexpr (kSize == 8) return _mm512_ror_epi64(elements, 1);
  }
  return elements;
}

// order[i] = from(i), for 64 places.
template <typename From>
inline __m512i byte_order(From from) noexcept {
  alignas(64) std::uint8_t order[64];
  for (unsigned i = 0; i < 64; ++i) order[i] = static_cast<std::uint8_t>(from(i));
  return _mm512_load_si512(order);
}

// Transposes 4 x 4 quarters; its own inverse.
inline void transpose_quarters(__m512i v[4]) noexcept {
  const __m512i a = _mm512_shuffle_i32x4(v[0], v[1], 0x44);
  const __m512i b = _mm512_shuffle_i32x4(v[0], v[1], 0xee);
  const __m512i c = _mm512_shuffle_i32x4(v[2], v[3], 0x44);
  const __m512i d = _mm512_shuffle_i32x4(v[2], v[3], 0xee);
  v[0] = _mm512_shuffle_i32x4(a, c, 0x88);
  v[1] = _mm512_shuffle_i32x4(a, c, 0xdd);
  v[2] = _mm512_shuffle_i32x4(b, d, 0x88);
  v[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
}

// Transposes 8 x 8 words of 64 bits; its own inverse.
inline void transpose_words(__m512i v[8]) noexcept {
  __m512i even[4];  // words 0 and 1, 2 and 3, ... of a pair of rows, even words
  __m512i odd[4];
  for (int pair = 0; pair < 4; ++pair) {
    even[pair] = _mm512_unpacklo_epi64(v[2 * pair], v[2 * pair + 1]);
    odd[pair] = _mm512_unpackhi_epi64(v[2 * pair], v[2 * pair + 1]);
  }
  transpose_quarters(even);
  transpose_quarters(odd);
  for (int pair = 0; pair < 4; ++pair) {
    v[2 * pair] = even[pair];
    v[2 * pair + 1] = odd[pair];
  }
}

struct Vectors {
  template <std::size_t kSize, Change kChange>
  static std::size_t split(const std::uint8_t* in, const std::uint8_t* base, std::size_t elements,
                           std::uint8_t* const* planes) noexcept {
    std::size_t i = 0;
    if constexpr (kSize == 2) {
      // Even bytes first, then odd ones; the other way round for the second vector, so one blend and one shuffle join
      // the halves.
      const __m512i front = byte_order([](unsigned at) { return at % 32 * 2 + at / 32; });
      const __m512i rear = byte_order([](unsigned at) { return at % 32 * 2 + 1 - at / 32; });
      for (; i + kGroup <= elements; i += kGroup) {
        const __m512i a = changed<2, kChange>(_mm512_loadu_si512(in + 2 * i), part<kChange>(base, 2 * i));
        const __m512i b = changed<2, kChange>(_mm512_loadu_si512(in + 2 * i + 64), part<kChange>(base, 2 * i + 64));
        const __m512i even_odd = _mm512_permutexvar_epi8(front, a);
        const __m512i odd_even = _mm512_permutexvar_epi8(rear, b);
        _mm512_storeu_si512(planes[0] + i, _mm512_mask_blend_epi64(0xf0, even_odd, odd_even));
        _mm512_storeu_si512(planes[1] + i, _mm512_shuffle_i64x2(even_odd, odd_even, 0x4e));
      }
    } else {
      // The bytes of one vector are grouped by plane; then its groups are exchanged with those of the other vectors.
      const __m512i by_plane = byte_order([](unsigned at) {
        constexpr unsigned kElements = 64 / kSize;
        return at % kElements * kSize + at / kElements;
      });
      for (; i + kGroup <= elements; i += kGroup) {
        __m512i v[kSize];
#pragma GCC unroll 8
        for (std::size_t k = 0; k < kSize; ++k) {
          const std::size_t at = kSize * i + 64 * k;
          v[k] = _mm512_permutexvar_epi8(by_plane,
                                         changed<kSize, kChange>(_mm512_loadu_si512(in + at), part<kChange>(base, at)));
        }
        if constexpr (kSize == 4) transpose_quarters(v);
        if constexpr (kSize == 8) transpose_words(v);
#pragma GCC unroll 8
        for (std::size_t k = 0; k < kSize; ++k) _mm512_storeu_si512(planes[k] + i, v[k]);
      }
    }
    return i;
  }

  template <std::size_t kSize, Change kChange>
  static std::size_t merge(const std::uint8_t* const* planes, const std::uint8_t* base, std::size_t elements,
                           std::uint8_t* out) noexcept {
    std::size_t i = 0;
    if constexpr (kSize == 2) {
      const __m512i front = byte_order([](unsigned at) { return at / 2 + at % 2 * 64; });
      const __m512i rear = byte_order([](unsigned at) { return 32 + at / 2 + at % 2 * 64; });
      for (; i + kGroup <= elements; i += kGroup) {
        const __m512i even = _mm512_loadu_si512(planes[0] + i);
        const __m512i odd = _mm512_loadu_si512(planes[1] + i);
        const __m512i first =
            unchanged<2, kChange>(_mm512_permutex2var_epi8(even, front, odd), part<kChange>(base, 2 * i));
        const __m512i second =
            unchanged<2, kChange>(_mm512_permutex2var_epi8(even, rear, odd), part<kChange>(base, 2 * i + 64));
        _mm512_storeu_si512(out + 2 * i, first);
        _mm512_storeu_si512(out + 2 * i + 64, second);
      }
    } else {
      const __m512i by_element = byte_order([](unsigned at) {
        constexpr unsigned kElements = 64 / kSize;
        return at % kSize * kElements + at / kSize;
      });
      for (; i + kGroup <= elements; i += kGroup) {
        __m512i v[kSize];
#pragma GCC unroll 8
        for (std::size_t k = 0; k < kSize; ++k) v[k] = _mm512_loadu_si512(planes[k] + i);
        if constexpr (kSize == 4) transpose_quarters(v);
        if constexpr (kSize == 8) transpose_words(v);
#pragma GCC unroll 8
        for (std::size_t k = 0; k < kSize; ++k) {
          const std::size_t at = kSize * i + 64 * k;
          _mm512_storeu_si512(
              out + at, unchanged<kSize, kChange>(_mm512_permutexvar_epi8(by_element, v[k]), part<kChange>(base, at)));
        }
      }
    }
    return i;
  }
};

}  // namespace

constinit const PlaneKernels PlaneKernels::kAvx512 = plane_kernels<Vectors>();

}  // namespace bitsnap::entropy
