// The AVX2 kernel that decodes values by class: 32 lanes at a time, one register of 16 symbols for each class.
#include "entropy/class_decode_kernel.hpp"

#include "entropy/class_lanes_avx2.hpp"
#include "entropy/octave_symbols.hpp"

namespace bitsnap::entropy {
namespace {

// The indexes of a class are its symbols from the first that has slots on, so that only index 0 starts with slot 0.
struct SymbolIndexes {
  alignas(16) std::uint8_t
      thresholds[64] = {};  // of a class's indexes as a heap: index 8 at 1, 4 and 12 at 2 and 3, ...
  alignas(16) std::uint8_t starts[64] = {};
  alignas(16) std::uint8_t frequencies[64] = {};
  std::uint8_t first[4] = {};  // the symbol of index 0
};

// A slot has reached a index if it is above the index's start less one. Compares are signed, so that both sides of them
// have their top bit flipped. Symbols without slots start where the next that has some does, or behind the last slot,
// so that none is the last that is reached.
inline SymbolIndexes make_indexes(const ClassDecodeTable& from) noexcept {
  SymbolIndexes indexes;
  for (unsigned c = 0; c < 4; ++c) {
    const auto frequency_of = [&](unsigned symbol) -> unsigned {
      return symbol < 16 && from.symbols[16 * c + symbol] == symbol ? from.frequencies[16 * c + symbol] : 0;
    };
    unsigned first = 0;
    while (first < 15 && frequency_of(first) == 0) ++first;
    indexes.first[c] = static_cast<std::uint8_t>(first);
    unsigned start = 0;
    for (unsigned index = 0; index < 16; ++index) {
      indexes.starts[16 * c + index] = static_cast<std::uint8_t>(start);
      indexes.frequencies[16 * c + index] = static_cast<std::uint8_t>(frequency_of(first + index));
      if (index > 0) {
        const unsigned depth = 3 - static_cast<unsigned>(__builtin_ctz(index));
        const unsigned node = (1U << depth) + (index >> (4 - depth));
        indexes.thresholds[16 * c + node] = static_cast<std::uint8_t>((start - 1) ^ 0x80);
      }
      start += frequency_of(first + index);
    }
  }
  return indexes;
}

template <std::size_t kClasses>
struct Table {
  Table(const ClassDecodeTable& from, const SymbolIndexes& indexes) noexcept
      : selectors([&](unsigned context) { return selector_of(from.plans[context]); }),
        powers([&](unsigned context) { return 1U << (from.plans[context] & 7); }),
        firsts([&](unsigned context) { return indexes.first[from.plans[context] >> 4 & 3]; }),
        thresholds(indexes.thresholds),
        starts(indexes.starts),
        frequencies(indexes.frequencies) {
    for (std::size_t i = 0; i < kClasses; ++i) {
      middles[i] = _mm256_set1_epi8(static_cast<char>(indexes.thresholds[16 * i + 1]));
    }
  }

  ByContext selectors;
  ByContext powers;  // of two, by low bits
  ByContext firsts;
  ByClass<kClasses> thresholds;
  ByClass<kClasses> starts;
  ByClass<kClasses> frequencies;
  __m256i middles[kClasses];  // thresholds of index 8
};

// How many low bits symbols have, where there are octaves.
struct OctaveShifts {
  explicit OctaveShifts(const ClassDecodeTable& from) noexcept
      : coarseness([&](unsigned context) { return coarseness_of(from.plans[context]); }),
        first([&](unsigned context) { return from.plans[context] & 15U; }),
        octaves(kOctaveSymbols.low_bits),
        heads(kOctaveSymbols.heads) {}

  ByContext coarseness;
  ByContext first;
  ByClass<4> octaves;
  ByClass<4> heads;
};

// The numbers of low bits of 32 symbols. The symbols become the heads of their values.
[[gnu::always_inline]] inline __m256i take_heads(const OctaveShifts& from, __m256i contexts,
                                                 __m256i& symbols) noexcept {
  const LaneClasses coarseness(from.coarseness.of(contexts));
  const __m256i shifts = _mm256_add_epi8(from.first.of(contexts), from.octaves.of(symbols, coarseness));
  symbols = from.heads.of(symbols, coarseness);
  return _mm256_min_epu8(shifts, _mm256_set1_epi8(kMostLowBits));
}

// 16 more than the index of each slot: a walk down the heap, where a node's children are at twice its place and one
// more.
template <std::size_t kClasses>
[[gnu::always_inline]] inline __m256i nodes_of(const Table<kClasses>& table, __m256i slots,
                                               const LaneClasses& classes) noexcept {
  const __m256i flipped = _mm256_xor_si256(slots, _mm256_set1_epi8(static_cast<char>(0x80)));
  __m256i nodes = _mm256_sub_epi8(_mm256_set1_epi8(2), _mm256_cmpgt_epi8(flipped, choose(table.middles, classes)));
#pragma GCC unroll 3
  for (int depth = 1; depth < 4; ++depth) {
    const __m256i reached = _mm256_cmpgt_epi8(flipped, table.thresholds.of(nodes, classes));
    nodes = _mm256_sub_epi8(_mm256_add_epi8(nodes, nodes), reached);
  }
  return nodes;
}

// The next low bits of 32 lanes, as many as `masks` have set. Each eight lanes take at most 56 bits.
[[gnu::always_inline]] inline __m256i take_bits(const std::uint8_t* from, std::uint64_t& bit, __m256i masks) noexcept {
  const auto take = [&](long long lanes) {
    const auto own = static_cast<std::uint64_t>(lanes);
    std::uint64_t word;
    __builtin_memcpy(&word, from + bit / 8, sizeof word);
    word >>= bit % 8;
    bit += static_cast<std::uint64_t>(_mm_popcnt_u64(own));
    return static_cast<long long>(_pdep_u64(word, own));
  };
  const long long first = take(_mm256_extract_epi64(masks, 0));
  const long long second = take(_mm256_extract_epi64(masks, 1));
  const long long third = take(_mm256_extract_epi64(masks, 2));
  const long long fourth = take(_mm256_extract_epi64(masks, 3));
  return _mm256_set_epi64x(fourth, third, second, first);
}

// Values with the next low byte below them where `whole` is set.
inline __m256i with_bytes(__m256i values, __m256i bytes, __m256i whole) noexcept {
  return _mm256_blendv_epi8(values, _mm256_or_si256(_mm256_slli_epi16(values, 8), bytes), whole);
}

inline void store_half(std::uint16_t* to, __m128i words) noexcept {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), words);
}

// Stores 32 values from their even quarters and their odd ones.
[[gnu::always_inline]] inline void store_values(std::uint16_t* to, __m256i even, __m256i odd) noexcept {
  store_half(to, _mm256_castsi256_si128(even));
  store_half(to + 8, _mm256_castsi256_si128(odd));
  store_half(to + 16, _mm256_extracti128_si256(even, 1));
  store_half(to + 24, _mm256_extracti128_si256(odd, 1));
}

// Replaces the values whose bits are set by the next escapes. Returns the end of those.
[[gnu::always_inline]] inline const std::uint8_t* take_escapes(const std::uint8_t* escapes, unsigned escaped,
                                                               std::uint16_t* values) noexcept {
  for (; escaped != 0; escaped = _blsr_u32(escaped)) {
    __builtin_memcpy(values + _tzcnt_u32(escaped), escapes, 2);
    escapes += 2;
  }
  return escapes;
}

inline const std::uint8_t* held(const std::uint8_t* cursor, const std::uint8_t* limit) noexcept {
  return cursor < limit ? cursor : limit;
}

template <std::size_t kClasses, bool kBits, bool kBytes, bool kFirsts, bool kOctaves>
void decode(ClassDecoding& at, const ClassDecodeTable& from, const SymbolIndexes& indexes, const std::uint8_t* contexts,
            std::size_t rounds, std::uint16_t* values, const ReadAhead& ahead) noexcept {
  const Table<kClasses> table(from, indexes);
  [[maybe_unused]] const OctaveShifts octave_shifts(from);
  const std::uint8_t* const limit = at.limit;
  const std::uint64_t last_bit = static_cast<std::uint64_t>(limit - at.bits) * 8;
  const std::uint8_t* bytes = at.bytes;
  const std::uint8_t* escapes = at.escapes;
  std::uint64_t bit = at.bit;
  ReadAheadCursor reading(ahead, 0);
  for (std::size_t part = 0; part < rounds * kDecodeGroups; ++part) {
    const std::size_t group = part % kDecodeGroups;
    reading.up();
    const std::uint8_t* in = held(at.in[group], limit);
    if constexpr (kBits) bit = bit < last_bit ? bit : last_bit;
    if constexpr (kBytes) bytes = held(bytes, limit);
#pragma GCC unroll 2
    for (std::size_t lane = 0; lane < kDecodeLanes; lane += kHalf) {
      const __m256i own = load(contexts);
      const __m256i selectors = table.selectors.of(own);
      const LaneClasses classes(selectors);
      __m256i low = load(at.low[group] + lane);
      __m256i high = load(at.high[group] + lane);
      const __m256i nodes = nodes_of(table, low, classes);
      const __m256i frequencies = table.frequencies.of(nodes, classes);
      take_slots(frequencies, _mm256_sub_epi8(low, table.starts.of(nodes, classes)), low, high, in);
      store(at.low[group] + lane, low);
      store(at.high[group] + lane, high);

      __m256i symbols = _mm256_and_si256(nodes, _mm256_set1_epi8(15));
      if constexpr (kFirsts) symbols = _mm256_add_epi8(symbols, table.firsts.of(own));
      const auto escaped =
          static_cast<unsigned>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(symbols, _mm256_set1_epi8(15))));
      [[maybe_unused]] __m256i shifts;
      if constexpr (kOctaves) shifts = take_heads(octave_shifts, own, symbols);
      // Even quarters and odd ones, as interleaving has them.
      __m256i even;
      __m256i odd;
      if constexpr (kBits) {
        const __m256i one = _mm256_set1_epi8(1);
        __m256i powers;
        if constexpr (kOctaves) {
          powers = _mm256_shuffle_epi8(_mm256_set1_epi64x(static_cast<long long>(0x8040201008040201)), shifts);
        } else {
          powers = table.powers.of(own);
        }
        const __m256i low_bits = take_bits(at.bits, bit, _mm256_sub_epi8(powers, one));
        even = _mm256_maddubs_epi16(_mm256_unpacklo_epi8(powers, one), _mm256_unpacklo_epi8(symbols, low_bits));
        odd = _mm256_maddubs_epi16(_mm256_unpackhi_epi8(powers, one), _mm256_unpackhi_epi8(symbols, low_bits));
      } else {
        even = _mm256_unpacklo_epi8(symbols, _mm256_setzero_si256());
        odd = _mm256_unpackhi_epi8(symbols, _mm256_setzero_si256());
      }
      if constexpr (kBytes) {
        const __m256i whole = [&] {
          if constexpr (kOctaves) return whole_of(shifts);
          return whole_lanes(selectors);
        }();
        const __m256i low_bytes = expand(bytes, static_cast<unsigned>(_mm256_movemask_epi8(whole)));
        const __m256i zero = _mm256_setzero_si256();
        even = with_bytes(even, _mm256_unpacklo_epi8(low_bytes, zero), _mm256_unpacklo_epi8(whole, whole));
        odd = with_bytes(odd, _mm256_unpackhi_epi8(low_bytes, zero), _mm256_unpackhi_epi8(whole, whole));
      }
      store_values(values, even, odd);
      if (escaped != 0) escapes = take_escapes(held(escapes, limit), escaped, values);
      contexts += kHalf;
      values += kHalf;
    }
    at.in[group] = in;
  }
  at.bytes = bytes;
  at.escapes = escapes;
  at.bit = bit;
}

void decode_any(ClassDecoding& at, const ClassDecodeTable& table, const std::uint8_t* contexts, std::size_t rounds,
                std::uint16_t* values, const ReadAhead& ahead) noexcept {
  const SymbolIndexes indexes = make_indexes(table);
  by_classes(table.plans, [&]<std::size_t kClasses>() {
    bool firsts = false;
    for (std::size_t i = 0; i < kClasses; ++i) firsts |= indexes.first[i] != 0;
    if (table.has_octaves) {
      decode<kClasses, true, true, true, true>(at, table, indexes, contexts, rounds, values, ahead);
    } else if (firsts) {
      decode<kClasses, true, true, true, false>(at, table, indexes, contexts, rounds, values, ahead);
    } else if (table.has_bytes) {
      decode<kClasses, true, true, false, false>(at, table, indexes, contexts, rounds, values, ahead);
    } else if (table.has_bits) {
      decode<kClasses, true, false, false, false>(at, table, indexes, contexts, rounds, values, ahead);
    } else {
      decode<kClasses, false, false, false, false>(at, table, indexes, contexts, rounds, values, ahead);
    }
  });
}

}  // namespace

constinit const ClassDecodeKernels ClassDecodeKernels::kAvx2 = {decode_any};

}  // namespace bitsnap::entropy
