// One source for each CPU level: only the comparison of 64 elements, and moving bits among members, differ.
#include "patch/slab_kernel.hpp"

#include "patch/element_group.hpp"

namespace bitsnap::patch {
namespace {

// Calls body(group number, elements of the group in place or padded with zeros, mask of those that exist).
template <std::size_t kBytes, typename Body>
inline void for_groups(const std::uint8_t* elements, std::size_t count, Body&& body) noexcept {
  const std::size_t whole = count / kWordElements;
  for (std::size_t i = 0; i < whole; ++i) body(i, elements + i * kWordElements * kBytes, ~std::uint64_t{0});
  const std::size_t rest = count % kWordElements;
  if (rest == 0) return;
  std::uint8_t room[kWordElements * kBytes] = {};
  __builtin_memcpy(room, elements + whole * kWordElements * kBytes, rest * kBytes);
  body(whole, room, (std::uint64_t{1} << rest) - 1);
}

constexpr std::size_t kPrefetchBytes = 65'536;  // what is hashed together

// Asks for a group of what is hashed next, while the processor works on this one.
template <std::size_t kBytes>
inline void prefetch_ahead(const std::uint8_t* group) noexcept {
  const auto ahead = reinterpret_cast<std::uintptr_t>(group) + kPrefetchBytes;
  for (std::size_t line = 0; line < kBytes; ++line) {
    __builtin_prefetch(reinterpret_cast<const void*>(ahead + kWordElements * line));
  }
}

template <std::size_t kBytes>
std::size_t differ(const std::uint8_t* a, const std::uint8_t* b, std::size_t elements, std::uint64_t* words) noexcept {
  std::size_t count = 0;
  for_groups<kBytes>(a, elements, [&](std::size_t i, const std::uint8_t* own, std::uint64_t valid) {
    std::uint8_t room[kWordElements * kBytes] = {};
    const std::uint8_t* other = b + i * kWordElements * kBytes;
    prefetch_ahead<kBytes>(own);
    prefetch_ahead<kBytes>(other);
    if (valid != ~std::uint64_t{0}) {
      __builtin_memcpy(room, other, (elements % kWordElements) * kBytes);
      other = room;
    }
    words[i] = Group<kBytes>::load(own).differs(Group<kBytes>::load(other));
    count += ones(words[i]);
  });
  return count;
}

constexpr std::size_t kBlockWords = 64;

// Writes first + i for each bit i of the word; returns how many. Precondition: room for 64 places.
template <typename Place>
inline std::size_t put_places(std::uint64_t bits, Place first, Place* to) noexcept {
  const std::size_t count = ones(bits);
#if defined(__AVX512VBMI2__)
  const __m512i numbers =
      _mm512_set_epi64(0x3f3e3d3c3b3a3938, 0x3736353433323130, 0x2f2e2d2c2b2a2928, 0x2726252423222120,
                       0x1f1e1d1c1b1a1918, 0x1716151413121110, 0x0f0e0d0c0b0a0908, 0x0706050403020100);
  __m512i own = _mm512_maskz_compress_epi8(bits, numbers);
  constexpr std::size_t kAtOnce = 64 / sizeof(Place);
  for (std::size_t done = 0;; done += kAtOnce) {
    if constexpr (sizeof(Place) == 2) {
      const __m512i wide = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(own));
      _mm512_storeu_si512(to + done, _mm512_add_epi16(wide, _mm512_set1_epi16(static_cast<short>(first))));
      own = _mm512_shuffle_i64x2(own, own, 0x4e);
    } else {
      const __m512i wide = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(own));
      _mm512_storeu_si512(to + done, _mm512_add_epi32(wide, _mm512_set1_epi32(static_cast<int>(first))));
      own = _mm512_alignr_epi32(own, own, 4);
    }
    if (done + kAtOnce >= count) break;
  }
#else
  for (; bits != 0; bits &= bits - 1) *to++ = static_cast<Place>(first + static_cast<Place>(__builtin_ctzll(bits)));
#endif
  return count;
}

// How many of 64 ascending numbers are at most `rank`.
inline std::size_t count_at_most(const std::uint16_t* numbers, std::uint16_t rank) noexcept {
#if defined(__AVX512BW__)
  const __m512i own = _mm512_set1_epi16(static_cast<short>(rank));
  const auto half = [&](std::size_t i) {
    return std::uint64_t{_mm512_cmple_epu16_mask(_mm512_loadu_si512(numbers + 32 * i), own)};
  };
  return ones(half(0) | half(1) << 32);
#elif defined(__AVX2__)
  const __m256i own = _mm256_set1_epi16(static_cast<short>(rank));
  const auto above = [&](std::size_t i) {
    return _mm256_cmpgt_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers + 16 * i)), own);
  };
  const auto half = [&](std::size_t i) {
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_packs_epi16(above(2 * i), above(2 * i + 1))));
  };
  return kBlockWords - ones(half(0) | std::uint64_t{half(1)} << 32);
#else
  std::size_t count = 0;
  for (std::size_t i = 0; i < kBlockWords; ++i) count += numbers[i] <= rank ? 1 : 0;
  return count;
#endif
}

// 4,096 elements by class: who is a member, and how many are in the words before.
template <std::size_t kBytes>
class Block {
 public:
  explicit Block(const SlabClasses& classes) noexcept : classes_(classes.classes) {
    for (std::size_t i = 0; i <= kMaxClasses; ++i) {
      limits_[i] = limit_of<kBytes>(classes.limits[i <= classes_ ? i : classes_]);
    }
  }

  [[nodiscard]] std::size_t classes() const noexcept { return classes_; }
  [[nodiscard]] std::uint64_t dense(std::size_t word) const noexcept { return below_[0][word]; }
  // The elements below limit i.
  [[nodiscard]] std::uint64_t below(std::size_t i, std::size_t word) const noexcept { return below_[i][word]; }
  [[nodiscard]] std::uint64_t members(std::size_t c, std::size_t word) const noexcept {
    return below_[c + 1][word] & ~below_[c][word];
  }
  // Of a class, in the words before this one; kBlockWords: in all.
  [[nodiscard]] std::uint32_t before(std::size_t c, std::size_t word) const noexcept { return before_[c][word]; }
  // The word of the member with this rank in the block.
  [[nodiscard]] std::size_t word_of(std::size_t c, std::uint32_t rank) const noexcept {
    return count_at_most(before_[c] + 1, static_cast<std::uint16_t>(rank));
  }

  // Precondition: at most 4,096 elements.
  void load(const std::uint8_t* base, std::size_t elements) noexcept {
    switch (classes_) {
      case 0: return load_classes<0>(base, elements);
      case 1: return load_classes<1>(base, elements);
      case 2: return load_classes<2>(base, elements);
      case 3: return load_classes<3>(base, elements);
      case 4: return load_classes<4>(base, elements);
      default: return load_classes<kMaxClasses>(base, elements);
    }
  }

 private:
  // With more classes than there are: the others have no members.
  template <std::size_t kClasses>
  void load_classes(const std::uint8_t* base, std::size_t elements) noexcept {
    const std::size_t words = (elements + kWordElements - 1) / kWordElements;
    std::uint16_t sums[kClasses + 1] = {};
    for_groups<kBytes>(base, elements, [&](std::size_t i, const std::uint8_t* group, std::uint64_t valid) {
      prefetch_ahead<kBytes>(group);
      auto own = Group<kBytes>::load(group);
      own.drop_signs();
      std::uint64_t before = own.below(limits_[0]) & valid;
      below_[0][i] = before;
      for (std::size_t c = 0; c < kClasses; ++c) {
        const std::uint64_t now = own.below(limits_[c + 1]) & valid;
        below_[c + 1][i] = now;
        before_[c][i] = sums[c];
        sums[c] = static_cast<std::uint16_t>(sums[c] + ones(now & ~before));
        before = now;
      }
    });
    for (std::size_t c = 0; c < kClasses; ++c) {
      for (std::size_t i = words; i <= kBlockWords; ++i) before_[c][i] = sums[c];
    }
  }

  std::size_t classes_;
  Limit<kBytes> limits_[kMaxClasses + 1];
  std::uint64_t below_[kMaxClasses + 1][kBlockWords];
  std::uint16_t before_[kMaxClasses][kBlockWords + 1];
};

// Calls body(first word, words) for each block of the elements, after loading it.
template <std::size_t kBytes, typename Body>
inline void for_blocks(const std::uint8_t* base, std::size_t elements, Block<kBytes>& block, Body&& body) noexcept {
  constexpr std::size_t kElements = kBlockWords * kWordElements;
  for (std::size_t first = 0; first < elements; first += kElements) {
    const std::size_t count = elements - first < kElements ? elements - first : kElements;
    block.load(base + first * kBytes, count);
    body(first / kWordElements, (count + kWordElements - 1) / kWordElements);
  }
}

template <std::size_t kBytes>
SlabKernels::Ranked rank(const std::uint8_t* base, std::size_t elements, const SlabClasses& classes,
                         const std::uint64_t* changed, std::uint64_t* dense, ClassRanks* ranks) noexcept {
  SlabKernels::Ranked ranked;
  Block<kBytes> block(classes);
  for_blocks<kBytes>(base, elements, block, [&](std::size_t first, std::size_t words) {
    for (std::size_t i = 0; i < words; ++i) {
      dense[first + i] = block.dense(i);
      ranked.dense += ones(block.dense(i));
      ranked.dense_changed += ones(block.dense(i) & changed[first + i]);
    }
    std::uint16_t places[kBlockWords * kWordElements + kWordElements];
    std::size_t count = 0;
    for (std::size_t i = 0; i < words; ++i) {
      const std::uint64_t listed = changed[first + i] & block.below(block.classes(), i) & ~block.dense(i);
      count += put_places<std::uint16_t>(listed, static_cast<std::uint16_t>(i * kWordElements), places + count);
    }
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t word = places[k] / kWordElements;
      const std::uint64_t lower = (std::uint64_t{1} << places[k] % kWordElements) - 1;
      std::size_t c = 0;
      for (std::size_t i = 1; i < block.classes(); ++i) {
        c += 1 - (block.below(i, word) >> places[k] % kWordElements & 1);
      }
      ClassRanks& own = ranks[c];
      own.ranks[own.count++] =
          own.passed + block.before(c, word) + static_cast<std::uint32_t>(ones(block.members(c, word) & lower));
    }
    for (std::size_t c = 0; c < block.classes(); ++c) ranks[c].passed += block.before(c, kBlockWords);
  });
  return ranked;
}

template <std::size_t kBytes>
std::size_t place(const std::uint8_t* base, std::size_t elements, const SlabClasses& classes, std::uint64_t* dense,
                  std::uint64_t* changed, ClassRanks* ranks) noexcept {
  std::size_t dense_elements = 0;
  Block<kBytes> block(classes);
  for_blocks<kBytes>(base, elements, block, [&](std::size_t first, std::size_t words) {
    for (std::size_t i = 0; i < words; ++i) {
      dense[first + i] = block.dense(i);
      changed[first + i] = 0;
      dense_elements += ones(block.dense(i));
    }
    for (std::size_t c = 0; c < block.classes(); ++c) {
      ClassRanks own = ranks[c];
      const std::uint32_t end = own.passed + block.before(c, kBlockWords);
      for (; own.next < own.count && own.ranks[own.next] < end; ++own.next) {
        const std::uint32_t rank = own.ranks[own.next] - own.passed;
        const std::size_t word = block.word_of(c, rank);
        changed[first + word] |=
            deposit_bits(std::uint64_t{1} << (rank - block.before(c, word)), block.members(c, word));
      }
      own.passed = end;
      ranks[c] = own;
    }
  });
  return dense_elements;
}

std::size_t list(const std::uint64_t* words, std::size_t count, std::uint32_t first_place,
                 std::uint32_t* places) noexcept {
  std::uint32_t* next = places;
  for (std::size_t i = 0; i < count; ++i) {
    next += put_places(words[i], first_place + static_cast<std::uint32_t>(i * kWordElements), next);
  }
  return static_cast<std::size_t>(next - places);
}

template <std::size_t kBytes>
void take(const std::uint8_t* from, const std::uint32_t* places, std::size_t count, std::uint32_t first_place,
          std::uint8_t* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) store_at(out, i, load_at<Element<kBytes>>(from, places[i] - first_place));
}

// Moves an element by so many ULPs, modulo all its bit patterns.
template <typename Bits>
inline Bits moved(Bits bits, Bits ulps) noexcept {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const auto reflect = [](Bits own) {
    return static_cast<Bits>(own ^ (mask_of<Bits>((own & kSign) != 0) & static_cast<Bits>(~kSign)));
  };
  return reflect(static_cast<Bits>(reflect(bits) + ulps));
}

template <std::size_t kBytes>
void move(const std::uint8_t* elements, const std::uint8_t* moves, std::size_t count, std::uint8_t* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    store_at(out, i, moved(load_at<Element<kBytes>>(elements, i), load_at<Element<kBytes>>(moves, i)));
  }
}

template <std::size_t kBytes>
std::size_t pick(const std::uint8_t* elements, const std::uint8_t* base, const std::uint32_t* places, std::size_t count,
                 std::uint8_t* out, std::uint32_t* out_places) noexcept {
  std::size_t picked = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto own = load_at<Element<kBytes>>(elements, i);
    store_at(out, picked, own);
    out_places[picked] = places[i];
    picked += own != load_at<Element<kBytes>>(base, i) ? 1U : 0U;
  }
  return picked;
}

}  // namespace

constinit const SlabKernels SlabKernels::BITSNAP_KERNEL_LEVEL = {
    {patch::differ<1>, patch::differ<2>, patch::differ<4>}, {patch::rank<1>, patch::rank<2>, patch::rank<4>},
    {patch::place<1>, patch::place<2>, patch::place<4>},    patch::list,
    {patch::take<1>, patch::take<2>, patch::take<4>},       {patch::move<1>, patch::move<2>, patch::move<4>},
    {patch::pick<1>, patch::pick<2>, patch::pick<4>}};

}  // namespace bitsnap::patch
