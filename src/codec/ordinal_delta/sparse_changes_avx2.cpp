// The changed elements by class, for AVX2: masks of 64 elements at a time, and a loop over the changed ones. If there
// are many, the dense form is smaller anyway.
#include "codec/ordinal_delta/sparse_changes_kernel.hpp"

#include "codec/ordinal_delta/ordinal_arithmetic.hpp"
#include "entropy/class_lanes_avx2.hpp"

namespace bitsnap::codec {
namespace {

constexpr std::size_t kGroup = 64;

inline __m256i load(const std::uint8_t* from) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

inline std::uint64_t top_bits(__m256i front, __m256i rear) noexcept {
  return static_cast<std::uint32_t>(_mm256_movemask_epi8(front)) |
         std::uint64_t{static_cast<std::uint32_t>(_mm256_movemask_epi8(rear))} << 32;
}

// A bit for each of 64 elements, set if they are equal.
template <std::size_t kBytes>
inline std::uint64_t equal_elements(const std::uint8_t* a, const std::uint8_t* b) noexcept {
  const auto equal = [&](std::size_t i) {
    if constexpr (kBytes == 1) return _mm256_cmpeq_epi8(load(a + 32 * i), load(b + 32 * i));
    if constexpr (kBytes == 2) return _mm256_cmpeq_epi16(load(a + 32 * i), load(b + 32 * i));
    return _mm256_cmpeq_epi32(load(a + 32 * i), load(b + 32 * i));
  };
  // Packing works within 16 bytes, so the quarters are exchanged afterwards.
  const auto half = [&](std::size_t i) {
    if constexpr (kBytes == 1) {
      return equal(i);
    } else if constexpr (kBytes == 2) {
      return _mm256_permute4x64_epi64(_mm256_packs_epi16(equal(2 * i), equal(2 * i + 1)), 0xd8);
    } else {
      const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(equal(4 * i), equal(4 * i + 1)),
                                                _mm256_packs_epi32(equal(4 * i + 2), equal(4 * i + 3)));
      return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
  };
  return top_bits(half(0), half(1));
}

// Calls body(first, count) for each 64 elements; the last count may be smaller.
template <typename Body>
inline void for_groups(std::size_t elements, Body&& body) noexcept {
  for (std::size_t first = 0; first < elements; first += kGroup) {
    body(first, elements - first < kGroup ? elements - first : kGroup);
  }
}

// The elements from `first` on: in place, or, for an incomplete group, copied to `room` and padded with zeros.
template <std::size_t kBytes>
inline const std::uint8_t* whole_group(const std::uint8_t* elements, std::size_t first, std::size_t count,
                                       std::uint8_t* room) noexcept {
  const std::uint8_t* const at = elements + first * kBytes;
  if (count == kGroup) return at;
  __builtin_memset(room, 0, kBytes * kGroup);
  __builtin_memcpy(room, at, count * kBytes);
  return room;
}

template <typename Body>
inline void for_bits(std::uint64_t bits, Body&& body) noexcept {
  for (; bits != 0; bits = _blsr_u64(bits)) body(static_cast<std::size_t>(_tzcnt_u64(bits)));
}

// The class of each of 64 elements, as masks.
template <typename Element>
class Members {
 public:
  Members(const DeltaGeometry& geometry, const SparseClasses& classes) noexcept
      : geometry_(geometry), class_of_([&](unsigned context) { return classes.class_of[context]; }) {}

  void look_at(const std::uint8_t* base) noexcept {
    alignas(32) std::uint8_t contexts[kGroup];
    contexts_loop<Element>(base, kGroup, geometry_, contexts);
    front_ = class_of_.of(load(contexts));
    rear_ = class_of_.of(load(contexts + 32));
  }

  [[nodiscard]] std::uint64_t of(std::size_t own) const noexcept {
    const __m256i all = _mm256_set1_epi8(static_cast<char>(own));
    return top_bits(_mm256_cmpeq_epi8(front_, all), _mm256_cmpeq_epi8(rear_, all));
  }

 private:
  DeltaGeometry geometry_;
  entropy::ByContext class_of_;
  __m256i front_ = _mm256_setzero_si256();
  __m256i rear_ = _mm256_setzero_si256();
};

template <typename Element>
std::size_t find(const std::uint8_t* data, const std::uint8_t* base, std::size_t elements,
                 const DeltaGeometry& geometry, std::uint64_t* mask, std::uint8_t* contexts,
                 std::uint8_t* deltas) noexcept {
  constexpr std::size_t kBytes = sizeof(Element);
  const DeltaGeometry own = geometry;
  std::size_t found = 0;
  mask[elements / 64] = 0;
  for_groups(elements, [&](std::size_t first, std::size_t count) {
    alignas(32) std::uint8_t data_room[kBytes * kGroup];
    alignas(32) std::uint8_t base_room[kBytes * kGroup];
    const std::uint8_t* const to = whole_group<kBytes>(data, first, count, data_room);
    const std::uint8_t* const from = whole_group<kBytes>(base, first, count, base_room);
    const std::uint64_t hits = ~equal_elements<kBytes>(to, from);
    mask[first / 64] = hits;
    for_bits(hits, [&](std::size_t i) {
      const auto before = load_at<Element>(from, i);
      contexts[found] = context_of(before, own);
      const auto delta = static_cast<Element>(reflected(load_at<Element>(to, i)) - reflected(before));
      __builtin_memcpy(deltas + found * kBytes, &delta, kBytes);
      ++found;
    });
  });
  return found;
}

template <typename Element>
void locate(const std::uint8_t* base, const std::uint64_t* mask, std::size_t elements, const DeltaGeometry& geometry,
            const SparseClasses& classes, std::uint32_t* const* places) noexcept {
  Members<Element> members(geometry, classes);
  std::size_t passed[kMaxSparseClasses] = {};
  std::uint32_t* next[kMaxSparseClasses];
  for (std::size_t c = 0; c < classes.classes; ++c) next[c] = places[c];
  for_groups(elements, [&](std::size_t first, std::size_t count) {
    alignas(32) std::uint8_t room[sizeof(Element) * kGroup];
    members.look_at(whole_group<sizeof(Element)>(base, first, count, room));
    const std::uint64_t hits = mask[first / 64];
    // Members after the last element do not matter: their places are never looked up.
    for (std::size_t c = 0; c < classes.classes; ++c) {
      const std::uint64_t own = members.of(c);
      for_bits(_pext_u64(hits, own), [&](std::size_t i) { *next[c]++ = static_cast<std::uint32_t>(passed[c] + i); });
      passed[c] += static_cast<std::size_t>(_mm_popcnt_u64(own));
    }
  });
}

template <typename Element>
void place(const std::uint8_t* base, std::size_t elements, const DeltaGeometry& geometry, const SparseClasses& classes,
           const std::uint64_t* const* masks, const std::uint8_t* const* deltas, std::uint8_t* out,
           std::size_t* used) noexcept {
  constexpr std::size_t kBytes = sizeof(Element);
  Members<Element> members(geometry, classes);
  std::size_t passed[kMaxSparseClasses] = {};
  std::size_t taken[kMaxSparseClasses] = {};
  for_groups(elements, [&](std::size_t first, std::size_t count) {
    alignas(32) std::uint8_t room[kBytes * kGroup];
    const std::uint8_t* const from = whole_group<kBytes>(base, first, count, room);
    std::uint8_t* const to = out + first * kBytes;
    const std::uint64_t valid = ~std::uint64_t{0} >> (kGroup - count);
    members.look_at(from);
    if (count == kGroup) {
      __builtin_memcpy(to, from, kBytes * kGroup);
    } else {
      __builtin_memcpy(to, from, kBytes * count);
    }
    for (std::size_t c = 0; c < classes.classes; ++c) {
      const std::uint64_t own = members.of(c) & valid;
      const std::size_t shift = passed[c] % 64;
      const std::uint64_t* const word = masks[c] + passed[c] / 64;
      const std::uint64_t bits = word[0] >> shift | word[1] << 1 << (63 - shift);
      passed[c] += static_cast<std::size_t>(_mm_popcnt_u64(own));
      for_bits(_pdep_u64(bits, own), [&](std::size_t i) {
        const Element moved = moved_by(load_at<Element>(from, i), load_at<Element>(deltas[c], taken[c]++));
        __builtin_memcpy(to + i * kBytes, &moved, kBytes);
      });
    }
  });
  for (std::size_t c = 0; c < classes.classes; ++c) used[c] = taken[c];
}

}  // namespace

constinit const SparseChangeKernels SparseChangeKernels::kAvx2 = {
    {codec::find<std::uint8_t>, codec::find<std::uint16_t>, codec::find<std::uint32_t>},
    {codec::locate<std::uint8_t>, codec::locate<std::uint16_t>, codec::locate<std::uint32_t>},
    {codec::place<std::uint8_t>, codec::place<std::uint16_t>, codec::place<std::uint32_t>}};

}  // namespace bitsnap::codec
