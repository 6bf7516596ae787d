// The plane kernels for AVX2: 32 elements of 2 or 4 bytes at a time; elements of 8 bytes one by one.
#include "entropy/planes_kernel.hpp"

#include <immintrin.h>

#include "entropy/planes_loop.hpp"

namespace bitsnap::entropy {
namespace {

constexpr std::size_t kGroup = 32;

inline __m256i load(const std::uint8_t* from) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
inline void store(std::uint8_t* to, __m256i bytes) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
}

template <std::size_t kSize, Change kChange>
inline __m256i changed(__m256i elements, const std::uint8_t* base) noexcept {
  if constexpr (kChange == Change::with_base) return _mm256_xor_si256(elements, load(base));
  if constexpr (kChange == Change::rotate && kSize == 2) {
    return _mm256_or_si256(_mm256_slli_epi16(elements, 1), _mm256_srli_epi16(elements, 15));
  }
  if constexpr (kChange == Change::rotate && kSize == 4) {
    return _mm256_or_si256(_mm256_slli_epi32(elements, 1), _mm256_srli_epi32(elements, 31));
  }
  return elements;
}

template <std::size_t kSize, Change kChange>
inline __m256i unchanged(__m256i elements, const std::uint8_t* base) noexcept {
  if constexpr (kChange == Change::with_base) return _mm256_xor_si256(elements, load(base));
  if constexpr (kChange == Change::rotate && kSize == 2) {
    return _mm256_or_si256(_mm256_srli_epi16(elements, 1), _mm256_slli_epi16(elements, 15));
  }
  if constexpr (kChange == Change::rotate && kSize == 4) {
    return _mm256_or_si256(_mm256_srli_epi32(elements, 1), _mm256_slli_epi32(elements, 31));
  }
  return elements;
}

// Within each half: groups the bytes of four elements by their position; its own inverse.
inline __m256i transpose_bytes(__m256i elements) noexcept {
  const __m256i order = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,  //
                                         0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm256_shuffle_epi8(elements, order);
}

// Within each half: transposes 4 x 4 words of 32 bits; its own inverse.
inline void transpose_words(__m256i v[4]) noexcept {
  const __m256i a = _mm256_unpacklo_epi32(v[0], v[1]);
  const __m256i b = _mm256_unpackhi_epi32(v[0], v[1]);
  const __m256i c = _mm256_unpacklo_epi32(v[2], v[3]);
  const __m256i d = _mm256_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm256_unpacklo_epi64(a, c);
  v[1] = _mm256_unpackhi_epi64(a, c);
  v[2] = _mm256_unpacklo_epi64(b, d);
  v[3] = _mm256_unpackhi_epi64(b, d);
}

struct Vectors {
  template <std::size_t kSize, Change kChange>
  static std::size_t split(const std::uint8_t* in, const std::uint8_t* base, std::size_t elements,
                           std::uint8_t* const* planes) noexcept {
    std::size_t i = 0;
    if constexpr (kSize == 2) {
      const __m256i low = _mm256_set1_epi16(255);
      for (; i + kGroup <= elements; i += kGroup) {
        const __m256i a = changed<2, kChange>(load(in + 2 * i), part<kChange>(base, 2 * i));
        const __m256i b = changed<2, kChange>(load(in + 2 * i + 32), part<kChange>(base, 2 * i + 32));
        const __m256i even = _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
        const __m256i odd = _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
        store(planes[0] + i, _mm256_permute4x64_epi64(even, 0xd8));
        store(planes[1] + i, _mm256_permute4x64_epi64(odd, 0xd8));
      }
    }
    if constexpr (kSize == 4) {
      const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
      for (; i + kGroup <= elements; i += kGroup) {
        __m256i v[4];
        for (std::size_t k = 0; k < 4; ++k) {
          v[k] = transpose_bytes(changed<4, kChange>(load(in + 4 * i + 32 * k), part<kChange>(base, 4 * i + 32 * k)));
        }
        transpose_words(v);
        for (std::size_t k = 0; k < 4; ++k) store(planes[k] + i, _mm256_permutevar8x32_epi32(v[k], in_order));
      }
    }
    return i;
  }

  template <std::size_t kSize, Change kChange>
  static std::size_t merge(const std::uint8_t* const* planes, const std::uint8_t* base, std::size_t elements,
                           std::uint8_t* out) noexcept {
    std::size_t i = 0;
    if constexpr (kSize == 2) {
      for (; i + kGroup <= elements; i += kGroup) {
        const __m256i even = load(planes[0] + i);
        const __m256i odd = load(planes[1] + i);
        const __m256i a = _mm256_unpacklo_epi8(even, odd);
        const __m256i b = _mm256_unpackhi_epi8(even, odd);
        const __m256i first = unchanged<2, kChange>(_mm256_permute2x128_si256(a, b, 0x20), part<kChange>(base, 2 * i));
        const __m256i second =
            unchanged<2, kChange>(_mm256_permute2x128_si256(a, b, 0x31), part<kChange>(base, 2 * i + 32));
        store(out + 2 * i, first);
        store(out + 2 * i + 32, second);
      }
    }
    if constexpr (kSize == 4) {
      const __m256i in_order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
      for (; i + kGroup <= elements; i += kGroup) {
        __m256i v[4];
        for (std::size_t k = 0; k < 4; ++k) v[k] = _mm256_permutevar8x32_epi32(load(planes[k] + i), in_order);
        transpose_words(v);
        for (std::size_t k = 0; k < 4; ++k) {
          store(out + 4 * i + 32 * k,
                unchanged<4, kChange>(transpose_bytes(v[k]), part<kChange>(base, 4 * i + 32 * k)));
        }
      }
    }
    return i;
  }
};

}  // namespace

constinit const PlaneKernels PlaneKernels::kAvx2 = plane_kernels<Vectors>();

}  // namespace bitsnap::entropy
