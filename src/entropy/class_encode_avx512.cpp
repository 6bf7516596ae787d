// The AVX-512 (VBMI, VBMI2) kernel that encodes values by class. The tables of all classes lie in 64-byte registers, so
// a class only adds upper bits to an index.
#include "entropy/class_encode_kernel.hpp"

#include "entropy/rans_lanes_avx512.hpp"

namespace bitsnap::entropy {
namespace {

struct Table {
  __m512i plans;
  __m512i indexes;
  CodeTable code;
};

inline Table make_table(const ClassEncodeTable& from) noexcept {
  return {_mm512_load_si512(from.plans),
          _mm512_load_si512(from.indexes),
          {_mm512_load_si512(from.starts), _mm512_load_si512(from.frequencies), _mm512_load_si512(from.reciprocals_low),
           _mm512_load_si512(from.reciprocals_high)}};
}

// The first 32 bytes as words; rear_words has the others.
inline __m512i front_words(__m512i bytes) noexcept { return _mm512_cvtepu8_epi16(_mm512_castsi512_si256(bytes)); }
inline __m512i rear_words(__m512i bytes) noexcept { return _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(bytes, 1)); }

// The words as bytes, 255 for a word that does not fit.
inline __m512i saturated(__m512i front, __m512i rear) noexcept {
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtusepi16_epi8(front)), _mm512_cvtusepi16_epi8(rear), 1);
}

// A bit stream that is written downwards.
struct Bits {
  std::uint8_t* out;
  std::uint64_t pending;
  unsigned count;
};

// Writes the lower `widths` bits of 64 bytes, whose other bits are zero. Neighbours are joined three times, which
// leaves eight words of up to 56 bits for one queue.
inline void put_bits(__m512i bits, __m512i widths, Bits& to) noexcept {
  const __m512i widths16 = _mm512_maddubs_epi16(widths, _mm512_set1_epi8(1));
  const __m512i widths32 = _mm512_madd_epi16(widths16, _mm512_set1_epi16(1));
  const __m512i widths64 =
      _mm512_add_epi64(_mm512_and_si512(widths32, _mm512_set1_epi64(0xffffffff)), _mm512_srli_epi64(widths32, 32));
  const __m512i low8 = _mm512_set1_epi16(0xff);
  const __m512i low16 = _mm512_set1_epi32(0xffff);
  const __m512i low32 = _mm512_set1_epi64(0xffffffff);
  const __m512i bits16 = _mm512_or_si512(_mm512_and_si512(bits, low8),
                                         _mm512_sllv_epi16(_mm512_srli_epi16(bits, 8), _mm512_and_si512(widths, low8)));
  const __m512i bits32 =
      _mm512_or_si512(_mm512_and_si512(bits16, low16),
                      _mm512_sllv_epi32(_mm512_srli_epi32(bits16, 16), _mm512_and_si512(widths16, low16)));
  const __m512i bits64 =
      _mm512_or_si512(_mm512_and_si512(bits32, low32),
                      _mm512_sllv_epi64(_mm512_srli_epi64(bits32, 32), _mm512_and_si512(widths32, low32)));
  alignas(64) std::uint64_t words[8];
  alignas(64) std::uint64_t counts[8];
  _mm512_store_si512(words, bits64);
  _mm512_store_si512(counts, widths64);
#pragma GCC unroll 8
  for (int i = 7; i >= 0; --i) {
    to.pending = to.pending << counts[i] | words[i];
    to.count += static_cast<unsigned>(counts[i]);  // at most 63
    const std::uint64_t aligned = to.pending << (-to.count & 63);
    __builtin_memcpy(to.out - 8, &aligned, 8);
    to.out -= to.count >> 3;
    to.count &= 7;
  }
}

// The position of the leading bit of each word, or 0, from its lower and its upper byte.
struct LeadingBits {
  LeadingBits() noexcept
      : front(byte_order([](unsigned i) { return i == 0 ? 0U : 32U - static_cast<unsigned>(__builtin_clz(i)); })),
        rear(_mm512_set1_epi8(7)) {}

  [[nodiscard]] __m512i of(__m512i lower, __m512i upper) const noexcept {
    const __mmask64 above = _mm512_test_epi8_mask(upper, upper);
    // Half of each byte; the bit shifted in from the neighbour is masked later.
    const __m512i halves = _mm512_srli_epi16(_mm512_mask_mov_epi8(lower, above, upper), 1);
    const __m512i places = _mm512_permutex2var_epi8(front, halves, rear);
    return _mm512_mask_add_epi8(places, above, places, _mm512_set1_epi8(8));
  }

  __m512i front;  // by half of the byte, 0 to 63: the leading bit of the byte is one higher
  __m512i rear;
};

// For each context, the low bits of a value below the octaves, and the highest leading bit of such a value.
struct OctavePlans {
  explicit OctavePlans(const ClassEncodeTable& from) noexcept {
    alignas(64) std::uint8_t last[64];
    for (unsigned i = 0; i < 64; ++i) {
      const unsigned coarseness = from.plans[i] >> 6;
      // Without octaves, larger values are escaped.
      last[i] = static_cast<std::uint8_t>(coarseness == 0 ? 255 : (from.plans[i] & 15U) + 3 - coarseness);
    }
    last_places = _mm512_load_si512(last);
  }

  __m512i last_places;
};

// The words without their `widths` low bits.
[[gnu::always_inline]] inline void drop_bits(__m512i widths, __m512i& front, __m512i& rear) noexcept {
  front = _mm512_srlv_epi16(front, front_words(widths));
  rear = _mm512_srlv_epi16(rear, rear_words(widths));
}

// Octaves times the symbols per octave: doubled once or twice, by the plan.
[[gnu::always_inline]] inline __m512i symbols_of_octaves(__m512i octaves, __m512i plans) noexcept {
  const __mmask64 finer = _mm512_cmplt_epu8_mask(plans, _mm512_set1_epi8(static_cast<char>(0xc0)));
  const __mmask64 finest = _knot_mask64(_mm512_movepi8_mask(plans));
  octaves = _mm512_mask_add_epi8(octaves, finer, octaves, octaves);
  return _mm512_mask_add_epi8(octaves, finest, octaves, octaves);
}

// Writes the values whose bits are set below `to`. Returns the start of what it wrote.
[[gnu::always_inline]] inline std::uint8_t* write_escapes_below(std::uint8_t* to, __mmask64 escaped, __m512i front,
                                                                __m512i rear) noexcept {
  to = write_words_below(to, static_cast<__mmask32>(escaped >> 32), rear);
  return write_words_below(to, static_cast<__mmask32>(escaped), front);
}

template <bool kBits, bool kBytes, bool kOctaves>
void encode(ClassEncoding& at, const ClassEncodeTable& from, const std::uint8_t* contexts, const std::uint16_t* values,
            std::size_t rounds, const ReadAhead& ahead) noexcept {
  const Table table = make_table(from);
  const __m512i even_bytes = byte_order([](unsigned i) { return 2 * i; });
  const __m512i fifteen = _mm512_set1_epi8(15);
  const __m512i width_masks = broadcast_table(
      reinterpret_cast<const std::uint8_t*>("\x00\x01\x03\x07\x0f\x1f\x3f\x7f\x00\x01\x03\x07\x0f\x1f\x3f"));
  [[maybe_unused]] const LeadingBits leading;
  [[maybe_unused]] const OctavePlans octave_plans(from);
  [[maybe_unused]] const __m512i odd_bytes = byte_order([](unsigned i) { return 2 * i + 1; });
  LaneGroups<EncodeLanes> groups(at, at.out);
  Bits bits{at.bits, at.pending, at.pending_bits};
  std::uint8_t* bytes = at.bytes;
  std::uint8_t* escapes = at.escapes;
  contexts += rounds * kEncodeGroups * kEncodeLanes;
  values += rounds * kEncodeGroups * kEncodeLanes;
  ReadAheadCursor reading(ahead, rounds * kEncodeGroups);
  const auto put = [&](EncodeLanes& group) __attribute__((always_inline)) {
    contexts -= kEncodeLanes;
    values -= kEncodeLanes;
    reading.down();
    const __m512i own = _mm512_loadu_si512(contexts);
    const __m512i plans = _mm512_permutexvar_epi8(own, table.plans);
    __m512i front = _mm512_loadu_si512(values);
    __m512i rear = _mm512_loadu_si512(values + kEncodeLanes / 2);
    const __m512i front_values = front;
    const __m512i rear_values = rear;
    __m512i symbols;
    [[maybe_unused]] __m512i shifts;  // low bits
    [[maybe_unused]] __m512i lower;
    [[maybe_unused]] __m512i upper;
    if constexpr (kOctaves) {
      lower = _mm512_permutex2var_epi8(front, even_bytes, rear);
      upper = _mm512_permutex2var_epi8(front, odd_bytes, rear);
      const __m512i octaves =
          _mm512_subs_epu8(leading.of(lower, upper), _mm512_permutexvar_epi8(own, octave_plans.last_places));
      shifts = _mm512_add_epi8(_mm512_and_si512(plans, fifteen), octaves);
      drop_bits(shifts, front, rear);
      symbols = _mm512_min_epu8(_mm512_adds_epu8(saturated(front, rear), symbols_of_octaves(octaves, plans)), fifteen);
    } else {
      if constexpr (kBytes) {
        const __m512i eight = _mm512_set1_epi8(8);
        bytes =
            write_below(bytes, _mm512_test_epi8_mask(plans, eight), _mm512_permutex2var_epi8(front, even_bytes, rear));
        drop_bits(_mm512_and_si512(plans, eight), front, rear);
      }
      if constexpr (kBits) {
        const __m512i widths = _mm512_and_si512(plans, _mm512_set1_epi8(7));
        const __m512i low = _mm512_and_si512(_mm512_permutex2var_epi8(front, even_bytes, rear),
                                             _mm512_shuffle_epi8(width_masks, widths));
        put_bits(low, widths, bits);
        drop_bits(widths, front, rear);
      }
      symbols = _mm512_min_epu8(saturated(front, rear), fifteen);
    }
    const __m512i classes = _mm512_and_si512(plans, _mm512_set1_epi8(0x30));
    const __m512i indexes = _mm512_permutexvar_epi8(_mm512_or_si512(classes, symbols), table.indexes);
    const __mmask64 escaped = _mm512_cmpeq_epi8_mask(_mm512_and_si512(indexes, fifteen), fifteen);
    if constexpr (kOctaves) {
      // An escaped value has the low bits of a value below the octaves, because its reader does not know the value.
      shifts = _mm512_mask_mov_epi8(shifts, escaped, _mm512_and_si512(plans, fifteen));
      const __mmask64 whole = _mm512_test_epi8_mask(shifts, _mm512_set1_epi8(8));
      bytes = write_below(bytes, whole, lower);
      const __m512i widths = _mm512_and_si512(shifts, _mm512_set1_epi8(7));
      put_bits(_mm512_and_si512(_mm512_mask_mov_epi8(lower, whole, upper), _mm512_shuffle_epi8(width_masks, widths)),
               widths, bits);
    }
    if (escaped != 0) escapes = write_escapes_below(escapes, escaped, front_values, rear_values);
    put_indexes(indexes, group, table.code);
  };
  for (; rounds > 0; --rounds) groups.down(put);
  groups.store(at, at.out);
  at.bits = bits.out;
  at.pending = bits.pending;
  at.pending_bits = bits.count;
  at.bytes = bytes;
  at.escapes = escapes;
}

void encode_any(ClassEncoding& at, const ClassEncodeTable& table, const std::uint8_t* contexts,
                const std::uint16_t* values, std::size_t rounds, const ReadAhead& ahead) noexcept {
  if (table.has_octaves) {
    encode<true, true, true>(at, table, contexts, values, rounds, ahead);
  } else if (table.has_bytes) {
    encode<true, true, false>(at, table, contexts, values, rounds, ahead);
  } else if (table.has_bits) {
    encode<true, false, false>(at, table, contexts, values, rounds, ahead);
  } else {
    encode<false, false, false>(at, table, contexts, values, rounds, ahead);
  }
}

}  // namespace

constinit const ClassEncodeKernels ClassEncodeKernels::kAvx512 = {encode_any};

}  // namespace bitsnap::entropy
