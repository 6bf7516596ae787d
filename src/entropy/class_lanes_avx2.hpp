// Shared by the AVX2 kernels of values by class: look-ups by context and by class. A shuffle looks up 16 places, so a
// table by context takes two registers, and a table by class and symbol index takes one register per class. Everything
// has internal linkage.
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

// The fields of a plan as blends read them: the class in bits 7 and 6; bit 5 is set if the lowest byte is a low byte.
inline unsigned selector_of(unsigned plan) noexcept {
  return (plan & 0x20) << 2 | (plan & 0x10) << 2 | (plan & 8) << 2;
}

// The class of each of 32 lanes, in the top bits of bytes.
struct LaneClasses {
  __m256i upper;
  __m256i lower;

  explicit LaneClasses(__m256i selectors) noexcept : upper(selectors), lower(_mm256_add_epi8(selectors, selectors)) {}
};

// The coarseness of a plan, in the bits in which selector_of() has the class.
inline unsigned coarseness_of(unsigned plan) noexcept { return plan & 0xc0; }

// All bits of a lane whose lowest byte is a low byte.
inline __m256i whole_lanes(__m256i selectors) noexcept {
  return _mm256_cmpgt_epi8(_mm256_setzero_si256(), _mm256_slli_epi16(selectors, 2));
}

// The same from the number of low bits.
inline __m256i whole_of(__m256i shifts) noexcept { return _mm256_cmpgt_epi8(shifts, _mm256_set1_epi8(7)); }

// Selects one of 1 to 4 registers for each byte by its class.
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

// A byte for each class and symbol index.
template <std::size_t kClasses>
struct ByClass {
  __m256i tables[kClasses];

  explicit ByClass(const std::uint8_t* bytes) noexcept {
    for (std::size_t i = 0; i < kClasses; ++i) tables[i] = broadcast(bytes + 16 * i);
  }

  // Precondition: the top bits of `indexes` are 0. Only their lower four bits count.
  [[nodiscard]] __m256i of(__m256i indexes, const LaneClasses& classes) const noexcept {
    __m256i found[kClasses];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kClasses; ++i) found[i] = _mm256_shuffle_epi8(tables[i], indexes);
    return choose(found, classes);
  }
};

// Calls body<classes>() for the number of classes.
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
