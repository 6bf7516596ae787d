// What the kernels of values by class for AVX2 share: bytes looked up by context and by class. A register's shuffle
// knows 16 places: a table by context is two registers, one by class and rank a register for each class. Everything has
// internal linkage; for files compiled for AVX2 alone.
#pragma once

#include "entropy/rans_lanes_avx2.hpp"

namespace bitsnap::entropy {
namespace {

// A byte for each of 32 contexts.
struct ByContext {
  __m256i front;
  __m256i rear;

  template <typename Of>
  explicit ByContext(Of of) noexcept {
    alignas(32) std::uint8_t bytes[32];
    for (unsigned context = 0; context < 32; ++context) bytes[context] = static_cast<std::uint8_t>(of(context));
    front = broadcast(bytes);
    rear = broadcast(bytes + 16);
  }

  [[nodiscard]] __m256i of(__m256i contexts) const noexcept {
    return _mm256_blendv_epi8(_mm256_shuffle_epi8(front, contexts), _mm256_shuffle_epi8(rear, contexts),
                              _mm256_slli_epi16(contexts, 3));
  }
};

// What a plan asks for, where blends look at it: bit 7 of the class's upper bit, 6 of its lower, and 5 where the lowest
// byte stays as it is.
inline unsigned selector_of(unsigned plan) noexcept {
  return (plan & 0x20) << 2 | (plan & 0x10) << 2 | (plan & 8) << 2;
}

// Which class each of 32 lanes has, in the top bits of bytes.
struct LaneClasses {
  __m256i upper;
  __m256i lower;

  explicit LaneClasses(__m256i selectors) noexcept : upper(selectors), lower(_mm256_add_epi8(selectors, selectors)) {}
};

// The coarseness that a plan asks for, in the same place as a class.
inline unsigned coarseness_of(unsigned plan) noexcept { return plan & 0xc0; }

// All bits where the lowest byte stays as it is.
inline __m256i whole_lanes(__m256i selectors) noexcept {
  return _mm256_cmpgt_epi8(_mm256_setzero_si256(), _mm256_slli_epi16(selectors, 2));
}

// The same from how many low bits there are.
inline __m256i whole_of(__m256i shifts) noexcept { return _mm256_cmpgt_epi8(shifts, _mm256_set1_epi8(7)); }

// The one of 1 to 4 registers that belongs to the class, byte by byte.
template <std::size_t kClasses>
inline __m256i choose(const __m256i (&of)[kClasses], const LaneClasses& classes) noexcept {
  if constexpr (kClasses == 1) {
    return of[0];
  } else {
    const __m256i first = _mm256_blendv_epi8(of[0], of[1], classes.lower);
    if constexpr (kClasses == 2) {
      return first;
    } else if constexpr (kClasses == 3) {
      return _mm256_blendv_epi8(first, of[2], classes.upper);
    } else {
      return _mm256_blendv_epi8(first, _mm256_blendv_epi8(of[2], of[3], classes.lower), classes.upper);
    }
  }
}

// A byte for each class and rank.
template <std::size_t kClasses>
struct ByClass {
  __m256i tables[kClasses];

  explicit ByClass(const std::uint8_t* bytes) noexcept {
    for (std::size_t i = 0; i < kClasses; ++i) tables[i] = broadcast(bytes + 16 * i);
  }

  // The top bits of `ranks` are not set, and what is above their lower four counts for nothing.
  [[nodiscard]] __m256i of(__m256i ranks, const LaneClasses& classes) const noexcept {
    __m256i found[kClasses];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kClasses; ++i) found[i] = _mm256_shuffle_epi8(tables[i], ranks);
    return choose(found, classes);
  }
};

// Calls body<classes>() for the classes that plans are of.
template <typename Body>
inline void by_classes(const std::uint8_t* plans, Body&& body) noexcept {
  unsigned last = 0;
  for (unsigned context = 0; context < 32; ++context) {
    const unsigned own = plans[context] >> 4 & 3;
    last = own > last ? own : last;
  }
  switch (last) {
    case 0: return body.template operator()<1>();
    case 1: return body.template operator()<2>();
    case 2: return body.template operator()<3>();
    default: return body.template operator()<4>();
  }
}

}  // namespace
}  // namespace bitsnap::entropy
