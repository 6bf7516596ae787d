// The changed elements by class, for AVX-512 (VBMI, VBMI2): 64 elements at a time, without branches on changes, which
// are random.
#include "codec/ordinal_delta/sparse_changes_kernel.hpp"

#include "codec/ordinal_delta/element_lanes_avx512.hpp"

namespace bitsnap::codec {
namespace {

inline __m512i class_table(const SparseClasses& classes) noexcept {
  return _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(classes.class_of)));
}

// Calls body(elements, first, count) for each 64 elements; the last count may be smaller.
template <typename Body>
inline void for_groups(std::size_t elements, Body&& body) noexcept {
  for (std::size_t first = 0; first < elements; first += kVectorLanes) {
    body(first, elements - first < kVectorLanes ? elements - first : kVectorLanes);
  }
}

inline std::uint64_t lanes_below(std::size_t count) noexcept {
  return count == kVectorLanes ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

// The elements from `first` on: in place, or, for an incomplete group, copied to `room` and padded with zeros.
template <std::size_t kBytes>
inline const std::uint8_t* whole_group(const std::uint8_t* elements, std::size_t first, std::size_t count,
                                       std::uint8_t* room) noexcept {
  const std::uint8_t* const at = elements + first * kBytes;
  if (count == kVectorLanes) return at;
  __builtin_memset(room, 0, kBytes * kVectorLanes);
  __builtin_memcpy(room, at, count * kBytes);
  return room;
}

template <std::size_t kBytes>
std::size_t find(const std::uint8_t* data, const std::uint8_t* base, std::size_t elements,
                 const DeltaGeometry& geometry, std::uint64_t* mask, std::uint8_t* contexts,
                 std::uint8_t* deltas) noexcept {
  using Lanes = ElementLanes<kBytes>;
  const ContextLimits limits(geometry);
  std::uint8_t* const first_context = contexts;
  mask[elements / 64] = 0;
  for_groups(elements, [&](std::size_t first, std::size_t count) {
    alignas(64) std::uint8_t data_room[kBytes * kVectorLanes];
    alignas(64) std::uint8_t base_room[kBytes * kVectorLanes];
    const Lanes lanes = Lanes::load(whole_group<kBytes>(data, first, count, data_room));
    const Lanes from = Lanes::load(whole_group<kBytes>(base, first, count, base_room));
    const std::uint64_t hits = lanes.differs(from);
    mask[first / 64] = hits;
    if (hits == 0) return;
    Lanes delta;
    for (std::size_t i = 0; i < kBytes; ++i) {
      delta.x[i] = Lanes::less(Lanes::reflected(lanes.x[i]), Lanes::reflected(from.x[i]));
    }
    delta.compress(hits, deltas);
    _mm512_storeu_si512(contexts, _mm512_maskz_compress_epi8(hits, contexts_of(from, limits)));
    contexts += _mm_popcnt_u64(hits);
  });
  return static_cast<std::size_t>(contexts - first_context);
}

template <std::size_t kBytes>
void locate(const std::uint8_t* base, const std::uint64_t* mask, std::size_t elements, const DeltaGeometry& geometry,
            const SparseClasses& classes, std::uint32_t* const* places) noexcept {
  const ContextLimits limits(geometry);
  const __m512i class_of = class_table(classes);
  const __m512i numbers = byte_order_of(1, 0);
  std::uint32_t passed[kMaxSparseClasses] = {};
  std::uint32_t* next[kMaxSparseClasses];
  for (std::size_t c = 0; c < classes.classes; ++c) next[c] = places[c];
  for_groups(elements, [&](std::size_t first, std::size_t count) {
    alignas(64) std::uint8_t room[kBytes * kVectorLanes];
    const auto lanes = ElementLanes<kBytes>::load(whole_group<kBytes>(base, first, count, room));
    const __m512i own = _mm512_permutexvar_epi8(contexts_of(lanes, limits), class_of);
    const std::uint64_t hits = mask[first / 64];
    // Members after the last element do not matter: their places are never looked up.
    std::uint64_t members[kMaxSparseClasses];
    for (std::size_t c = 0; c < classes.classes; ++c) {
      members[c] = _mm512_cmpeq_epi8_mask(own, _mm512_set1_epi8(static_cast<char>(c)));
    }
    if (hits != 0) {
      for (std::size_t c = 0; c < classes.classes; ++c) {
        const std::uint64_t own_hits = _pext_u64(hits, members[c]);
        __m512i bytes = _mm512_maskz_compress_epi8(own_hits, numbers);
        const __m512i before = _mm512_set1_epi32(static_cast<int>(passed[c]));
        const auto hit_count = static_cast<std::size_t>(_mm_popcnt_u64(own_hits));
        for (std::size_t done = 0;; done += 16) {
          const __m512i wide = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(bytes));
          _mm512_storeu_si512(next[c] + done, _mm512_add_epi32(wide, before));
          if (done + 16 >= hit_count) break;
          bytes = _mm512_alignr_epi32(bytes, bytes, 4);
        }
        next[c] += hit_count;
      }
    }
    for (std::size_t c = 0; c < classes.classes; ++c) {
      passed[c] += static_cast<std::uint32_t>(_mm_popcnt_u64(members[c]));
    }
  });
}

template <std::size_t kBytes>
void place(const std::uint8_t* base, std::size_t elements, const DeltaGeometry& geometry, const SparseClasses& classes,
           const std::uint64_t* const* masks, const std::uint8_t* const* deltas, std::uint8_t* out,
           std::size_t* used) noexcept {
  using Lanes = ElementLanes<kBytes>;
  const ContextLimits limits(geometry);
  const __m512i class_of = class_table(classes);
  std::size_t passed[kMaxSparseClasses] = {};
  const std::uint8_t* next[kMaxSparseClasses];
  for (std::size_t c = 0; c < classes.classes; ++c) next[c] = deltas[c];
  for_groups(elements, [&](std::size_t first, std::size_t count) {
    alignas(64) std::uint8_t rest[kBytes * kVectorLanes];
    const std::uint64_t valid = lanes_below(count);
    Lanes lanes = Lanes::load(whole_group<kBytes>(base, first, count, rest));
    const __m512i own = _mm512_permutexvar_epi8(contexts_of(lanes, limits), class_of);
    Lanes moves{};
    for (std::size_t c = 0; c < classes.classes; ++c) {
      const std::uint64_t members = _mm512_cmpeq_epi8_mask(own, _mm512_set1_epi8(static_cast<char>(c))) & valid;
      const std::size_t shift = passed[c] % 64;
      const std::uint64_t* const word = masks[c] + passed[c] / 64;
      const std::uint64_t bits = word[0] >> shift | word[1] << 1 << (63 - shift);
      passed[c] += static_cast<std::size_t>(_mm_popcnt_u64(members));
      moves.expand(_pdep_u64(bits, members), next[c]);
    }
    for (std::size_t i = 0; i < kBytes; ++i) {
      lanes.x[i] = Lanes::reflected(Lanes::added(Lanes::reflected(lanes.x[i]), moves.x[i]));
    }
    if (count < kVectorLanes) {
      lanes.store(rest);
      __builtin_memcpy(out + first * kBytes, rest, count * kBytes);
    } else {
      lanes.store(out + first * kBytes);
    }
  });
  for (std::size_t c = 0; c < classes.classes; ++c) used[c] = static_cast<std::size_t>(next[c] - deltas[c]) / kBytes;
}

}  // namespace

constinit const SparseChangeKernels SparseChangeKernels::kAvx512 = {
    {codec::find<1>, codec::find<2>, codec::find<4>},
    {codec::locate<1>, codec::locate<2>, codec::locate<4>},
    {codec::place<1>, codec::place<2>, codec::place<4>}};

}  // namespace bitsnap::codec
