// 64 elements as each CPU level holds them, and comparisons that give a bit for each. For kernels only.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "base/kernel_bits.hpp"
#include "patch/slab_kernel.hpp"

namespace bitsnap::patch {
namespace {

template <std::size_t kBytes>
struct ElementOf;
template <>
struct ElementOf<1> {
  using Type = std::uint8_t;
};
template <>
struct ElementOf<2> {
  using Type = std::uint16_t;
};
template <>
struct ElementOf<4> {
  using Type = std::uint32_t;
};

template <std::size_t kBytes>
using Element = typename ElementOf<kBytes>::Type;

template <std::size_t kBytes>
inline constexpr std::uint32_t kMagnitude = static_cast<std::uint32_t>((std::uint64_t{1} << (8 * kBytes - 1)) - 1);

inline std::size_t ones(std::uint64_t word) noexcept { return static_cast<std::size_t>(__builtin_popcountll(word)); }

// The lowest bits of `word`, moved apart to the bits of `mask`.
inline std::uint64_t deposit_bits(std::uint64_t word, std::uint64_t mask) noexcept {
#if defined(__BMI2__)
  return _pdep_u64(word, mask);
#else
  std::uint64_t apart = 0;
  const std::size_t members = ones(mask);
  if (members < kWordElements) word &= (std::uint64_t{1} << members) - 1;
  for (std::size_t passed = 0; word != 0;) {
    const auto next = static_cast<std::size_t>(__builtin_ctzll(word));
    for (; passed < next; ++passed) mask &= mask - 1;
    apart |= mask & (0 - mask);
    word &= word - 1;
  }
  return apart;
#endif
}

#if defined(__AVX512BW__)

template <std::size_t kBytes>
struct Group {
  static constexpr std::size_t kVectors = kBytes;
  __m512i x[kVectors];

  static Group load(const std::uint8_t* from) noexcept {
    Group group;
    for (std::size_t i = 0; i < kVectors; ++i) group.x[i] = _mm512_loadu_si512(from + 64 * i);
    return group;
  }
  // Joins the bits of the vectors.
  template <typename Compare>
  static std::uint64_t join(Compare&& compare) noexcept {
    if constexpr (kBytes == 1) return compare(0);
    if constexpr (kBytes == 2) {
      return _mm512_kunpackd(static_cast<__mmask64>(compare(1)), static_cast<__mmask64>(compare(0)));
    }
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < kVectors; ++i) word |= std::uint64_t{compare(i)} << (i * 64 / kBytes);
    return word;
  }
  [[nodiscard]] std::uint64_t differs(const Group& other) const noexcept {
    return join([&](std::size_t i) {
      if constexpr (kBytes == 1)
        return _mm512_cmpneq_epi8_mask(x[i], other.x[i]);
      else if constexpr (kBytes == 2)
        return _mm512_cmpneq_epi16_mask(x[i], other.x[i]);
      else
        return _mm512_cmpneq_epi32_mask(x[i], other.x[i]);
    });
  }
  static __m512i all(std::uint32_t value) noexcept {
    if constexpr (kBytes == 1)
      return _mm512_set1_epi8(static_cast<char>(value));
    else if constexpr (kBytes == 2)
      return _mm512_set1_epi16(static_cast<short>(value));
    else
      return _mm512_set1_epi32(static_cast<int>(value));
  }
  void drop_signs() noexcept {
    for (auto& own : x) own = _mm512_and_si512(own, all(kMagnitude<kBytes>));
  }
  [[nodiscard]] std::uint64_t below(__m512i limit) const noexcept {
    return join([&](std::size_t i) {
      if constexpr (kBytes == 1)
        return _mm512_cmplt_epu8_mask(x[i], limit);
      else if constexpr (kBytes == 2)
        return _mm512_cmplt_epu16_mask(x[i], limit);
      else
        return _mm512_cmplt_epu32_mask(x[i], limit);
    });
  }
};
template <std::size_t kBytes>
using Limit = __m512i;
template <std::size_t kBytes>
inline Limit<kBytes> limit_of(std::uint32_t value) noexcept {
  return Group<kBytes>::all(value);
}

#elif defined(__AVX2__)

template <std::size_t kBytes>
struct Group {
  static constexpr std::size_t kVectors = 2 * kBytes;
  __m256i x[kVectors];

  static Group load(const std::uint8_t* from) noexcept {
    Group group;
    for (std::size_t i = 0; i < kVectors; ++i) {
      group.x[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32 * i));
    }
    return group;
  }
  // Joins comparisons, whose lanes are all ones or zero. Packing works within 16 bytes, so the order is mended after
  // it.
  template <typename Compare>
  static std::uint64_t join(Compare&& compare) noexcept {
    const auto half = [&](std::size_t i) {
      if constexpr (kBytes == 1) {
        return compare(i);
      } else if constexpr (kBytes == 2) {
        return _mm256_permute4x64_epi64(_mm256_packs_epi16(compare(2 * i), compare(2 * i + 1)), 0xd8);
      } else {
        const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(compare(4 * i), compare(4 * i + 1)),
                                                  _mm256_packs_epi32(compare(4 * i + 2), compare(4 * i + 3)));
        return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
      }
    };
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(half(0))) |
           std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_epi8(half(1)))} << 32;
  }
  [[nodiscard]] std::uint64_t differs(const Group& other) const noexcept {
    return ~join([&](std::size_t i) {
      if constexpr (kBytes == 1)
        return _mm256_cmpeq_epi8(x[i], other.x[i]);
      else if constexpr (kBytes == 2)
        return _mm256_cmpeq_epi16(x[i], other.x[i]);
      else
        return _mm256_cmpeq_epi32(x[i], other.x[i]);
    });
  }
  static __m256i all(std::uint32_t value) noexcept {
    if constexpr (kBytes == 1)
      return _mm256_set1_epi8(static_cast<char>(value));
    else if constexpr (kBytes == 2)
      return _mm256_set1_epi16(static_cast<short>(value));
    else
      return _mm256_set1_epi32(static_cast<int>(value));
  }
  void drop_signs() noexcept {
    for (auto& own : x) own = _mm256_and_si256(own, all(kMagnitude<kBytes>));
  }
  // Magnitudes are not negative, so they compare as signed numbers; `limit` is one less than the limit, which may be
  // -1.
  [[nodiscard]] std::uint64_t below(__m256i limit) const noexcept {
    return ~join([&](std::size_t i) {
      if constexpr (kBytes == 1)
        return _mm256_cmpgt_epi8(x[i], limit);
      else if constexpr (kBytes == 2)
        return _mm256_cmpgt_epi16(x[i], limit);
      else
        return _mm256_cmpgt_epi32(x[i], limit);
    });
  }
};
template <std::size_t kBytes>
using Limit = __m256i;
template <std::size_t kBytes>
inline Limit<kBytes> limit_of(std::uint32_t value) noexcept {
  return Group<kBytes>::all(value - 1);
}

#else

template <std::size_t kBytes>
struct Group {
  Element<kBytes> x[kWordElements];

  static Group load(const std::uint8_t* from) noexcept {
    Group group;
    __builtin_memcpy(group.x, from, sizeof group.x);
    return group;
  }
  template <typename Compare>
  static std::uint64_t join(Compare&& compare) noexcept {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < kWordElements; ++i) word |= std::uint64_t{compare(i)} << i;
    return word;
  }
  [[nodiscard]] std::uint64_t differs(const Group& other) const noexcept {
    return join([&](std::size_t i) { return x[i] != other.x[i]; });
  }
  void drop_signs() noexcept {
    for (auto& own : x) own = static_cast<Element<kBytes>>(own & kMagnitude<kBytes>);
  }
  [[nodiscard]] std::uint64_t below(std::uint32_t limit) const noexcept {
    return join([&](std::size_t i) { return x[i] < limit; });
  }
};
template <std::size_t kBytes>
using Limit = std::uint32_t;
template <std::size_t kBytes>
inline Limit<kBytes> limit_of(std::uint32_t value) noexcept {
  return value;
}

#endif

}  // namespace
}  // namespace bitsnap::patch
