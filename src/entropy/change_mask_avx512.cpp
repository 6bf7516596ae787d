// The change-mask kernels for AVX-512 VBMI2: compress and expand in registers, and masked loads and stores of exactly
// the existing values.
#include "entropy/change_mask_kernel.hpp"

#include <immintrin.h>

namespace bitsnap::entropy {
namespace {

constexpr std::size_t kGroup = 64;

// A 64-byte vector of elements of one size. Lane masks are the low bits of a word.
template <std::size_t kSize>
struct Lanes;

template <>
struct Lanes<1> {
  static std::uint64_t differ(__m512i a, __m512i b) noexcept { return _mm512_cmpneq_epi8_mask(a, b); }
  static __m512i compress(std::uint64_t lanes, __m512i v) noexcept { return _mm512_maskz_compress_epi8(lanes, v); }
  static __m512i expand(__m512i base, std::uint64_t lanes, __m512i v) noexcept {
    return _mm512_mask_expand_epi8(base, lanes, v);
  }
};
template <>
struct Lanes<2> {
  static std::uint64_t differ(__m512i a, __m512i b) noexcept { return _mm512_cmpneq_epi16_mask(a, b); }
  static __m512i compress(std::uint64_t lanes, __m512i v) noexcept {
    return _mm512_maskz_compress_epi16(static_cast<__mmask32>(lanes), v);
  }
  static __m512i expand(__m512i base, std::uint64_t lanes, __m512i v) noexcept {
    return _mm512_mask_expand_epi16(base, static_cast<__mmask32>(lanes), v);
  }
};
template <>
struct Lanes<4> {
  static std::uint64_t differ(__m512i a, __m512i b) noexcept { return _mm512_cmpneq_epi32_mask(a, b); }
  static __m512i compress(std::uint64_t lanes, __m512i v) noexcept {
    return _mm512_maskz_compress_epi32(static_cast<__mmask16>(lanes), v);
  }
  static __m512i expand(__m512i base, std::uint64_t lanes, __m512i v) noexcept {
    return _mm512_mask_expand_epi32(base, static_cast<__mmask16>(lanes), v);
  }
};
template <>
struct Lanes<8> {
  static std::uint64_t differ(__m512i a, __m512i b) noexcept { return _mm512_cmpneq_epi64_mask(a, b); }
  static __m512i compress(std::uint64_t lanes, __m512i v) noexcept {
    return _mm512_maskz_compress_epi64(static_cast<__mmask8>(lanes), v);
  }
  static __m512i expand(__m512i base, std::uint64_t lanes, __m512i v) noexcept {
    return _mm512_mask_expand_epi64(base, static_cast<__mmask8>(lanes), v);
  }
};

template <std::size_t kSize>
inline constexpr std::size_t kLanes = 64 / kSize;

// The lanes of the vector that begins at element i of a group.
template <std::size_t kSize>
inline std::uint64_t lanes_of(std::uint64_t bits, std::size_t i) noexcept {
  return _bzhi_u64(bits >> i, kLanes<kSize>);
}

// Mask of the first `bytes` bytes of a vector, at most 64.
inline __mmask64 first_bytes(std::size_t bytes) noexcept {
  return _bzhi_u64(~std::uint64_t{0}, static_cast<unsigned>(bytes));
}

inline std::uint64_t load_bits(const std::uint8_t* from) noexcept {
  std::uint64_t bits;
  __builtin_memcpy(&bits, from, 8);
  return bits;
}

template <std::size_t kSize>
inline std::size_t changed(const std::uint8_t* current, const std::uint8_t* base, std::size_t groups,
                           std::uint8_t* mask) noexcept {
  std::size_t count = 0;
  for (std::size_t group = 0; group < groups; ++group) {
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < kGroup; i += kLanes<kSize>) {
      const std::size_t at = (group * kGroup + i) * kSize;
      bits |= Lanes<kSize>::differ(_mm512_loadu_si512(current + at), _mm512_loadu_si512(base + at)) << i;
    }
    __builtin_memcpy(mask + group * 8, &bits, 8);
    count += static_cast<std::size_t>(__builtin_popcountll(bits));
  }
  return count;
}

template <std::size_t kSize>
inline std::size_t gather(const std::uint8_t* current, const std::uint8_t* mask, std::size_t groups,
                          std::uint8_t* values) noexcept {
  std::uint8_t* to = values;
  for (std::size_t group = 0; group < groups; ++group) {
    const std::uint64_t bits = load_bits(mask + group * 8);
    if (bits == 0) continue;
    for (std::size_t i = 0; i < kGroup; i += kLanes<kSize>) {
      const std::uint64_t lanes = lanes_of<kSize>(bits, i);
      const std::size_t bytes = static_cast<std::size_t>(__builtin_popcountll(lanes)) * kSize;
      const __m512i elements = _mm512_loadu_si512(current + (group * kGroup + i) * kSize);
      _mm512_mask_storeu_epi8(to, first_bytes(bytes), Lanes<kSize>::compress(lanes, elements));
      to += bytes;
    }
  }
  return static_cast<std::size_t>(to - values) / kSize;
}

template <std::size_t kSize>
inline std::size_t scatter(const std::uint8_t* base, const std::uint8_t* mask, const std::uint8_t* values,
                           std::size_t groups, std::uint8_t* out) noexcept {
  const std::uint8_t* from = values;
  for (std::size_t group = 0; group < groups; ++group) {
    const std::uint64_t bits = load_bits(mask + group * 8);
    for (std::size_t i = 0; i < kGroup; i += kLanes<kSize>) {
      const std::uint64_t lanes = lanes_of<kSize>(bits, i);
      const std::size_t bytes = static_cast<std::size_t>(__builtin_popcountll(lanes)) * kSize;
      const std::size_t at = (group * kGroup + i) * kSize;
      const __m512i packed = _mm512_maskz_loadu_epi8(first_bytes(bytes), from);
      _mm512_storeu_si512(out + at, Lanes<kSize>::expand(_mm512_loadu_si512(base + at), lanes, packed));
      from += bytes;
    }
  }
  return static_cast<std::size_t>(from - values) / kSize;
}

}  // namespace

constinit const ChangeMaskKernels ChangeMaskKernels::kAvx512 = {
    {entropy::changed<1>, entropy::changed<2>, entropy::changed<4>, entropy::changed<8>}};
constinit const ChangeMoveKernels ChangeMoveKernels::kAvx512 = {
    {entropy::gather<1>, entropy::gather<2>, entropy::gather<4>, entropy::gather<8>},
    {entropy::scatter<1>, entropy::scatter<2>, entropy::scatter<4>, entropy::scatter<8>}};

}  // namespace bitsnap::entropy
