// Finds changed elements with AVX2. It lacks compress and expand, so it does not move elements.
#include "entropy/change_mask_kernel.hpp"

#include <immintrin.h>

namespace bitsnap::entropy {
namespace {

constexpr std::size_t kGroup = 64;

// Bit i: whether element i of a 32-byte vector is equal.
template <std::size_t kSize>
inline std::uint32_t same(const std::uint8_t* a_at, const std::uint8_t* b_at) noexcept {
  const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a_at));
  const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b_at));
  if constexpr (kSize == 1) return static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(a, b)));
  if constexpr (kSize == 2) {
    const __m256i equal = _mm256_cmpeq_epi16(a, b);
    const __m128i packed = _mm_packs_epi16(_mm256_castsi256_si128(equal), _mm256_extracti128_si256(equal, 1));
    return static_cast<std::uint32_t>(_mm_movemask_epi8(packed));
  }
  if constexpr (kSize == 4) {
    return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b))));
  }
  return static_cast<std::uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(a, b))));
}

template <std::size_t kSize>
inline std::size_t changed(const std::uint8_t* current, const std::uint8_t* base, std::size_t groups,
                           std::uint8_t* mask) noexcept {
  constexpr std::size_t kLanes = 32 / kSize;
  std::size_t count = 0;
  for (std::size_t group = 0; group < groups; ++group) {
    std::uint64_t equal = 0;
    for (std::size_t i = 0; i < kGroup; i += kLanes) {
      const std::size_t at = (group * kGroup + i) * kSize;
      equal |= std::uint64_t{same<kSize>(current + at, base + at)} << i;
    }
    const std::uint64_t bits = ~equal;
    __builtin_memcpy(mask + group * 8, &bits, 8);
    count += static_cast<std::size_t>(__builtin_popcountll(bits));
  }
  return count;
}

}  // namespace

constinit const ChangeMaskKernels ChangeMaskKernels::kAvx2 = {
    {entropy::changed<1>, entropy::changed<2>, entropy::changed<4>, entropy::changed<8>}};

}  // namespace bitsnap::entropy
