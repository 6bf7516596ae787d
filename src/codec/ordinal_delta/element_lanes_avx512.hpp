// 64 elements of one, two or four bytes in AVX-512 (VBMI, VBMI2) registers: their contexts, and moving them. Computes
// the functions of ordinal_arithmetic.hpp. Everything has internal linkage.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "codec/ordinal_delta/ordinal_deltas_kernel.hpp"

namespace bitsnap::codec {
namespace {

inline constexpr std::size_t kVectorLanes = 64;

inline __m512i byte_order_of(unsigned stride, unsigned offset) noexcept {
  alignas(64) std::uint8_t order[64];
  for (unsigned i = 0; i < 64; ++i) order[i] = static_cast<std::uint8_t>(i * stride + offset);
  return _mm512_load_si512(order);
}

struct ContextLimits {
  explicit ContextLimits(const DeltaGeometry& geometry) noexcept
      : top(_mm512_set1_epi8(static_cast<char>(geometry.top))),
        last(_mm512_set1_epi8(static_cast<char>(geometry.last_context))),
        mask(_mm512_set1_epi8(static_cast<char>(geometry.exponent_mask))),
        shift(_mm_cvtsi32_si128(static_cast<int>(geometry.mantissa_bits))) {}

  __m512i top;
  __m512i last;
  __m512i mask;
  __m128i shift;
};

// kBytes registers of 64 / kBytes elements each.
template <std::size_t kBytes>
struct ElementLanes;

template <>
struct ElementLanes<1> {
  __m512i x[1];

  static ElementLanes load(const std::uint8_t* from) noexcept { return {{_mm512_loadu_si512(from)}}; }
  void store(std::uint8_t* to) const noexcept { _mm512_storeu_si512(to, x[0]); }
  [[nodiscard]] __m512i exponents(const ContextLimits& limits) const noexcept {
    return _mm512_and_si512(_mm512_srl_epi16(x[0], limits.shift), limits.mask);
  }
  static __m512i reflected(__m512i e) noexcept {
    const __m512i low = _mm512_set1_epi8(0x7f);
    return _mm512_xor_si512(e, _mm512_maskz_mov_epi8(_mm512_movepi8_mask(e), low));
  }
  static __m512i added(__m512i a, __m512i b) noexcept { return _mm512_add_epi8(a, b); }
  [[nodiscard]] std::uint64_t differs(const ElementLanes& other) const noexcept {
    return _mm512_cmpneq_epi8_mask(x[0], other.x[0]);
  }
  static __m512i less(__m512i a, __m512i b) noexcept { return _mm512_sub_epi8(a, b); }
  // Writes the elements that `hits` marks, in order, and advances `to`; 64 bytes are overwritten.
  void compress(std::uint64_t hits, std::uint8_t*& to) const noexcept {
    _mm512_storeu_si512(to, _mm512_maskz_compress_epi8(hits, x[0]));
    to += _mm_popcnt_u64(hits);
  }
  // The inverse: loads the next elements into the lanes that `hits` marks.
  void expand(std::uint64_t hits, const std::uint8_t*& deltas) noexcept {
    x[0] = _mm512_mask_expand_epi8(x[0], hits, _mm512_loadu_si512(deltas));
    deltas += _mm_popcnt_u64(hits);
  }
};

template <>
struct ElementLanes<2> {
  __m512i x[2];

  static ElementLanes load(const std::uint8_t* from) noexcept {
    return {{_mm512_loadu_si512(from), _mm512_loadu_si512(from + 64)}};
  }
  void store(std::uint8_t* to) const noexcept {
    _mm512_storeu_si512(to, x[0]);
    _mm512_storeu_si512(to + 64, x[1]);
  }
  [[nodiscard]] __m512i exponents(const ContextLimits& limits) const noexcept {
    const __m512i even = byte_order_of(2, 0);
    return _mm512_and_si512(
        _mm512_permutex2var_epi8(_mm512_srl_epi16(x[0], limits.shift), even, _mm512_srl_epi16(x[1], limits.shift)),
        limits.mask);
  }
  static __m512i reflected(__m512i e) noexcept {
    return _mm512_xor_si512(e, _mm512_srli_epi16(_mm512_srai_epi16(e, 15), 1));
  }
  static __m512i added(__m512i a, __m512i b) noexcept { return _mm512_add_epi16(a, b); }
  [[nodiscard]] std::uint64_t differs(const ElementLanes& other) const noexcept {
    return _mm512_kunpackd(_mm512_cmpneq_epi16_mask(x[1], other.x[1]), _mm512_cmpneq_epi16_mask(x[0], other.x[0]));
  }
  static __m512i less(__m512i a, __m512i b) noexcept { return _mm512_sub_epi16(a, b); }
  void compress(std::uint64_t hits, std::uint8_t*& to) const noexcept {
    for (int i = 0; i < 2; ++i) {
      const auto own = static_cast<__mmask32>(hits >> (32 * i));
      _mm512_storeu_si512(to, _mm512_maskz_compress_epi16(own, x[i]));
      to += 2 * _mm_popcnt_u32(own);
    }
  }
  void expand(std::uint64_t hits, const std::uint8_t*& deltas) noexcept {
    const auto front = static_cast<__mmask32>(hits);
    const auto rear = static_cast<__mmask32>(hits >> 32);
    x[0] = _mm512_mask_expand_epi16(x[0], front, _mm512_loadu_si512(deltas));
    deltas += 2 * _mm_popcnt_u32(front);
    x[1] = _mm512_mask_expand_epi16(x[1], rear, _mm512_loadu_si512(deltas));
    deltas += 2 * _mm_popcnt_u32(rear);
  }
};

template <>
struct ElementLanes<4> {
  __m512i x[4];

  static ElementLanes load(const std::uint8_t* from) noexcept {
    return {{_mm512_loadu_si512(from), _mm512_loadu_si512(from + 64), _mm512_loadu_si512(from + 128),
             _mm512_loadu_si512(from + 192)}};
  }
  void store(std::uint8_t* to) const noexcept {
    for (int i = 0; i < 4; ++i) _mm512_storeu_si512(to + 64 * i, x[i]);
  }
  [[nodiscard]] __m512i exponents(const ContextLimits& limits) const noexcept {
    const __m512i fourth = byte_order_of(4, 0);
    const __m512i front =
        _mm512_permutex2var_epi8(_mm512_srl_epi32(x[0], limits.shift), fourth, _mm512_srl_epi32(x[1], limits.shift));
    const __m512i rear =
        _mm512_permutex2var_epi8(_mm512_srl_epi32(x[2], limits.shift), fourth, _mm512_srl_epi32(x[3], limits.shift));
    return _mm512_and_si512(_mm512_inserti64x4(front, _mm512_castsi512_si256(rear), 1), limits.mask);
  }
  static __m512i reflected(__m512i e) noexcept {
    return _mm512_xor_si512(e, _mm512_srli_epi32(_mm512_srai_epi32(e, 31), 1));
  }
  static __m512i added(__m512i a, __m512i b) noexcept { return _mm512_add_epi32(a, b); }
  [[nodiscard]] std::uint64_t differs(const ElementLanes& other) const noexcept {
    std::uint64_t all = 0;
    for (int i = 0; i < 4; ++i) {
      all |= std::uint64_t{_mm512_cmpneq_epi32_mask(x[i], other.x[i])} << (16 * i);
    }
    return all;
  }
  static __m512i less(__m512i a, __m512i b) noexcept { return _mm512_sub_epi32(a, b); }
  void compress(std::uint64_t hits, std::uint8_t*& to) const noexcept {
    for (int i = 0; i < 4; ++i) {
      const auto own = static_cast<__mmask16>(hits >> (16 * i));
      _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(own, x[i]));
      to += 4 * _mm_popcnt_u32(own);
    }
  }
  void expand(std::uint64_t hits, const std::uint8_t*& deltas) noexcept {
    for (int i = 0; i < 4; ++i) {
      const auto own = static_cast<__mmask16>(hits >> (16 * i));
      x[i] = _mm512_mask_expand_epi32(x[i], own, _mm512_loadu_si512(deltas));
      deltas += 4 * _mm_popcnt_u32(own);
    }
  }
};

template <std::size_t kBytes>
inline __m512i contexts_of(const ElementLanes<kBytes>& base, const ContextLimits& limits) noexcept {
  return _mm512_min_epu8(_mm512_subs_epu8(limits.top, base.exponents(limits)), limits.last);
}

}  // namespace
}  // namespace bitsnap::codec
