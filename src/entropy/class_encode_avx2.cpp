// The AVX2 kernel that encodes values by class: 32 lanes at a time, one register with a table of 16 for each class.
#include "entropy/class_encode_kernel.hpp"

#include "entropy/class_lanes_avx2.hpp"

namespace bitsnap::entropy {
namespace {

// By class and symbol; a symbol without slots has the entry of the escape.
struct Bytes {
  alignas(16) std::uint8_t starts[64];
  alignas(16) std::uint8_t frequencies[64];
  alignas(16) std::uint8_t reciprocals_low[64];
  alignas(16) std::uint8_t reciprocals_high[64];
  alignas(16) std::uint8_t escaped[64];  // all bits set, or none
};

inline Bytes make_bytes(const ClassEncodeTable& from) noexcept {
  Bytes bytes;
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned index = from.indexes[i];
    bytes.starts[i] = from.starts[index];
    bytes.frequencies[i] = from.frequencies[index];
    bytes.reciprocals_low[i] = from.reciprocals_low[index];
    bytes.reciprocals_high[i] = from.reciprocals_high[index];
    bytes.escaped[i] = (index & 15) == 15 ? 0xff : 0;
  }
  return bytes;
}

template <std::size_t kClasses>
struct Table {
  Table(const ClassEncodeTable& from, const Bytes& bytes) noexcept
      : selectors([&](unsigned context) { return selector_of(from.plans[context]); }),
        inverses([&](unsigned context) { return 128U >> (from.plans[context] & 7); }),
        masks([&](unsigned context) { return (1U << (from.plans[context] & 7)) - 1; }),
        starts(bytes.starts),
        frequencies(bytes.frequencies),
        reciprocals_low(bytes.reciprocals_low),
        reciprocals_high(bytes.reciprocals_high),
        escaped(bytes.escaped) {}

  ByContext selectors;
  ByContext inverses;  // 2^7 / 2^low bits
  ByContext masks;     // of low bits
  ByClass<kClasses> starts;
  ByClass<kClasses> frequencies;
  ByClass<kClasses> reciprocals_low;
  ByClass<kClasses> reciprocals_high;
  ByClass<kClasses> escaped;
};

// The symbols of values if any plan has octaves.
struct OctavePlans {
  explicit OctavePlans(const ClassEncodeTable& from) noexcept
      : first([&](unsigned context) { return from.plans[context] & 15U; }),
        last_places([&](unsigned context) {
          const unsigned coarseness = from.plans[context] >> 6;
          return coarseness == 0 ? 255U : (from.plans[context] & 15U) + 3 - coarseness;
        }),
        doublings([&](unsigned context) {
          const unsigned coarseness = from.plans[context] >> 6;
          return (coarseness < 3 ? 0x80U : 0U) | (coarseness < 2 ? 0x40U : 0U);
        }) {}

  ByContext first;        // low bits of a value below the octaves
  ByContext last_places;  // the highest leading bit of such a value; without octaves, larger values are escaped
  ByContext doublings;    // of symbols per octave: one for bit 7, another for bit 6
};

// The position of the leading bit of each word, or 0, from its lower and its upper byte.
[[gnu::always_inline]] inline __m256i leading_bits(__m256i lower, __m256i upper) noexcept {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i places = _mm256_setr_epi8(0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3,  //
                                          0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i no_upper = _mm256_cmpeq_epi8(upper, zero);
  const __m256i byte = _mm256_blendv_epi8(upper, lower, no_upper);
  const __m256i front = _mm256_and_si256(_mm256_srli_epi16(byte, 4), _mm256_set1_epi8(15));
  const __m256i no_front = _mm256_cmpeq_epi8(front, zero);
  const __m256i place = _mm256_shuffle_epi8(places, _mm256_blendv_epi8(front, byte, no_front));
  return _mm256_add_epi8(place, _mm256_add_epi8(_mm256_andnot_si256(no_upper, _mm256_set1_epi8(8)),
                                                _mm256_andnot_si256(no_front, _mm256_set1_epi8(4))));
}

// A bit stream that is written downwards.
struct Bits {
  std::uint8_t* out;
  std::uint64_t pending;
  unsigned count;  // 0 to 7
};

// Writes the bits of 32 bytes that `masks` selects: at most 56 of each eight bytes.
[[gnu::always_inline]] inline void put_bits(__m256i bytes, __m256i masks, Bits& to) noexcept {
  const auto put = [&](long long eight, long long mask) {
    const auto own = static_cast<std::uint64_t>(mask);
    const auto count = static_cast<unsigned>(_mm_popcnt_u64(own));
    to.pending = to.pending << count | _pext_u64(static_cast<std::uint64_t>(eight), own);
    to.count += count;  // at most 63
    const std::uint64_t aligned = to.pending << (-to.count & 63);
    __builtin_memcpy(to.out - 8, &aligned, 8);
    to.out -= to.count >> 3;
    to.count &= 7;
  };
  put(_mm256_extract_epi64(bytes, 3), _mm256_extract_epi64(masks, 3));
  put(_mm256_extract_epi64(bytes, 2), _mm256_extract_epi64(masks, 2));
  put(_mm256_extract_epi64(bytes, 1), _mm256_extract_epi64(masks, 1));
  put(_mm256_extract_epi64(bytes, 0), _mm256_extract_epi64(masks, 0));
}

inline __m128i load_half(const std::uint16_t* from) noexcept {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

// The words of 32 lanes: even and odd quarters, in the order of the interleaving.
struct Words {
  [[gnu::always_inline]] explicit Words(const std::uint16_t* from) noexcept
      : even(_mm256_set_m128i(load_half(from + 16), load_half(from))),
        odd(_mm256_set_m128i(load_half(from + 24), load_half(from + 8))) {}

  [[nodiscard, gnu::always_inline]] __m256i lowest() const noexcept {
    const __m256i low_bytes = _mm256_set1_epi16(0xff);
    return _mm256_packus_epi16(_mm256_and_si256(even, low_bytes), _mm256_and_si256(odd, low_bytes));
  }
  [[nodiscard, gnu::always_inline]] __m256i upper() const noexcept {
    return _mm256_packus_epi16(_mm256_srli_epi16(even, 8), _mm256_srli_epi16(odd, 8));
  }
  // Drops the lowest byte where `whole` is set.
  [[gnu::always_inline]] void drop_bytes(__m256i whole) noexcept {
    even = _mm256_blendv_epi8(even, _mm256_srli_epi16(even, 8), _mm256_unpacklo_epi8(whole, whole));
    odd = _mm256_blendv_epi8(odd, _mm256_srli_epi16(odd, 8), _mm256_unpackhi_epi8(whole, whole));
  }
  // Drops low bits: a saturated doubling, times 2^15 / 2^low bits, divided by 2^16.
  [[gnu::always_inline]] void drop_bits(__m256i inverses) noexcept {
    const __m256i zero = _mm256_setzero_si256();
    even = _mm256_mulhi_epu16(_mm256_adds_epu16(even, even), _mm256_unpacklo_epi8(zero, inverses));
    odd = _mm256_mulhi_epu16(_mm256_adds_epu16(odd, odd), _mm256_unpackhi_epi8(zero, inverses));
  }
  [[gnu::always_inline]] void limit_to_bytes() noexcept {
    const __m256i low_bytes = _mm256_set1_epi16(0xff);
    even = _mm256_min_epu16(even, low_bytes);
    odd = _mm256_min_epu16(odd, low_bytes);
  }

  __m256i even;
  __m256i odd;
};

// Octaves times the symbols per octave: doubled where the top bit of `doublings` is set, and again where the next is.
[[gnu::always_inline]] inline __m256i symbols_of_octaves(__m256i octaves, __m256i doublings) noexcept {
  const __m256i once = _mm256_blendv_epi8(octaves, _mm256_add_epi8(octaves, octaves), doublings);
  return _mm256_blendv_epi8(once, _mm256_add_epi8(once, once), _mm256_add_epi8(doublings, doublings));
}

// Writes the values whose bits are set below `to`. Returns the start of what it wrote.
[[gnu::always_inline]] inline std::uint8_t* write_escapes_below(std::uint8_t* to, unsigned escaped,
                                                                const std::uint16_t* values) noexcept {
  while (escaped != 0) {
    const unsigned last = 31 - _lzcnt_u32(escaped);
    to -= 2;
    __builtin_memcpy(to, values + last, 2);
    escaped ^= 1U << last;
  }
  return to;
}

// Puts the symbols of 32 lanes into their states, of which `low` and `high` are the bytes.
template <std::size_t kClasses>
[[gnu::always_inline]] inline void put_symbols(const Table<kClasses>& table, __m256i symbols,
                                               const LaneClasses& classes, std::uint8_t* low, std::uint8_t* high,
                                               std::uint8_t*& out) noexcept {
  __m256i low_bytes = load(low);
  __m256i high_bytes = load(high);
  put_codes({table.frequencies.of(symbols, classes), table.starts.of(symbols, classes),
             table.reciprocals_low.of(symbols, classes), table.reciprocals_high.of(symbols, classes)},
            low_bytes, high_bytes, out);
  store(low, low_bytes);
  store(high, high_bytes);
}

template <std::size_t kClasses, bool kBits, bool kBytes, bool kOctaves>
void encode(ClassEncoding& at, const ClassEncodeTable& from, const std::uint8_t* contexts, const std::uint16_t* values,
            std::size_t rounds, const ReadAhead& ahead) noexcept {
  const Table<kClasses> table(from, make_bytes(from));
  [[maybe_unused]] const OctavePlans octave_plans(from);
  const __m256i fifteen = _mm256_set1_epi8(15);
  Bits bits{at.bits, at.pending, at.pending_bits};
  std::uint8_t* bytes = at.bytes;
  std::uint8_t* escapes = at.escapes;
  contexts += rounds * kEncodeGroups * kEncodeLanes;
  values += rounds * kEncodeGroups * kEncodeLanes;
  ReadAheadCursor reading(ahead, rounds * kEncodeGroups);
  for (std::size_t part = rounds * kEncodeGroups; part-- > 0;) {
    const std::size_t group = part % kEncodeGroups;
    reading.down();
    std::uint8_t* out = at.out[group];
#pragma GCC unroll 2
    for (std::size_t lane = kEncodeLanes; lane > 0;) {
      lane -= kHalf;
      contexts -= kHalf;
      values -= kHalf;
      const __m256i own = load(contexts);
      const __m256i selectors = table.selectors.of(own);
      Words words(values);
      [[maybe_unused]] __m256i lower;
      [[maybe_unused]] __m256i upper;
      [[maybe_unused]] __m256i first;
      [[maybe_unused]] __m256i octaves;
      if constexpr (kOctaves) {
        lower = words.lowest();
        upper = words.upper();
        first = octave_plans.first.of(own);
        octaves = _mm256_subs_epu8(leading_bits(lower, upper), octave_plans.last_places.of(own));
        const __m256i shifts = _mm256_add_epi8(first, octaves);
        words.drop_bytes(whole_of(shifts));
        words.drop_bits(_mm256_shuffle_epi8(_mm256_set1_epi64x(0x0102040810204080), shifts));
      } else if constexpr (kBytes) {
        const __m256i whole = whole_lanes(selectors);
        bytes = write_below(bytes, whole, words.lowest());
        words.drop_bytes(whole);
      }
      if constexpr (kBits && !kOctaves) {
        put_bits(words.lowest(), table.masks.of(own), bits);
        words.drop_bits(table.inverses.of(own));
      } else if constexpr (!kOctaves) {
        words.limit_to_bytes();
      }
      __m256i symbols = _mm256_packus_epi16(words.even, words.odd);
      if constexpr (kOctaves) {
        const __m256i increment = symbols_of_octaves(octaves, octave_plans.doublings.of(own));
        symbols = _mm256_adds_epu8(symbols, increment);
      }
      symbols = _mm256_min_epu8(symbols, fifteen);
      const LaneClasses classes(selectors);
      const __m256i escapes_here = table.escaped.of(symbols, classes);
      const auto escaped = static_cast<unsigned>(_mm256_movemask_epi8(escapes_here));
      if constexpr (kOctaves) {
        // An escaped value has the low bits of a value below the octaves, because its reader does not know the value.
        const __m256i shifts = _mm256_add_epi8(first, _mm256_andnot_si256(escapes_here, octaves));
        const __m256i whole = whole_of(shifts);
        bytes = write_below(bytes, whole, lower);
        put_bits(_mm256_blendv_epi8(lower, upper, whole),
                 _mm256_shuffle_epi8(_mm256_set1_epi64x(0x7f3f1f0f07030100), shifts), bits);
      }
      escapes = write_escapes_below(escapes, escaped, values);
      put_symbols(table, symbols, classes, at.low[group] + lane, at.high[group] + lane, out);
    }
    at.out[group] = out;
  }
  at.bits = bits.out;
  at.pending = bits.pending;
  at.pending_bits = bits.count;
  at.bytes = bytes;
  at.escapes = escapes;
}

void encode_any(ClassEncoding& at, const ClassEncodeTable& table, const std::uint8_t* contexts,
                const std::uint16_t* values, std::size_t rounds, const ReadAhead& ahead) noexcept {
  by_classes(table.plans, [&]<std::size_t kClasses>() {
    if (table.has_octaves) {
      encode<kClasses, true, true, true>(at, table, contexts, values, rounds, ahead);
    } else if (table.has_bytes) {
      encode<kClasses, true, true, false>(at, table, contexts, values, rounds, ahead);
    } else if (table.has_bits) {
      encode<kClasses, true, false, false>(at, table, contexts, values, rounds, ahead);
    } else {
      encode<kClasses, false, false, false>(at, table, contexts, values, rounds, ahead);
    }
  });
}

}  // namespace

constinit const ClassEncodeKernels ClassEncodeKernels::kAvx2 = {encode_any};

}  // namespace bitsnap::entropy
