// The decoding kernel of the lane coder for AVX2: 32 lanes at a time, 16 ranks in a register; called only where the
// machine has it.
#include "entropy/rans_decode_kernel.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

namespace bitsnap::entropy {
namespace {

constexpr std::size_t kHalf = 32;  // lanes of a vector

// For each mask of eight lanes, which byte from `first` on each marked lane takes in; other lanes get zero.
struct ExpandTable {
  alignas(64) std::uint8_t orders[256][8];
};

constexpr ExpandTable make_expand_table(unsigned first) noexcept {
  ExpandTable table{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned next = first;
    for (unsigned lane = 0; lane < 8; ++lane) {
      table.orders[mask][lane] = static_cast<std::uint8_t>((mask >> lane & 1) != 0 ? next++ : 0x80);
    }
  }
  return table;
}

constexpr ExpandTable kExpandLower = make_expand_table(0);
constexpr ExpandTable kExpandUpper = make_expand_table(8);

struct Table {
  __m256i thresholds;  // of the ranks as a heap: that of rank 8 at 1, of 4 and 12 at 2 and 3, and so on
  __m256i middle;      // that of rank 8
  __m256i symbols;
  __m256i starts;
  __m256i frequencies;
  __m256i coded;  // the last slot, flipped, before those of the escape
};

inline __m256i broadcast(const std::uint8_t* sixteen) noexcept {
  return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(sixteen)));
}

// A slot has reached a rank if it is above the rank's start less one. Compares are signed, so that both sides of them
// have their top bit flipped.
inline Table make_table(const RansDecodeTable& from) noexcept {
  alignas(16) std::uint8_t thresholds[16] = {};
  for (unsigned depth = 0; depth < 4; ++depth) {
    for (unsigned at = 0; at < 1U << depth; ++at) {
      const unsigned rank = (2 * at + 1) << (3 - depth);
      thresholds[(1U << depth) + at] = static_cast<std::uint8_t>((from.starts[rank] - 1) ^ 0x80);
    }
  }
  Table table;
  table.thresholds = broadcast(thresholds);
  table.middle = _mm256_set1_epi8(static_cast<char>(thresholds[1]));
  table.symbols = broadcast(from.symbols);
  table.starts = broadcast(from.starts);
  table.frequencies = broadcast(from.frequencies);
  const unsigned escapes_from = from.escape_rank < 16 ? from.starts[from.escape_rank] : 256;
  table.coded = _mm256_set1_epi8(static_cast<char>((escapes_from - 1) ^ 0x80));
  return table;
}

// 16 more than the rank of each slot, which shuffles take for the rank: a walk down the heap, where a node's children
// are at twice its place and one more.
inline __m256i nodes_of(const Table& table, __m256i flipped) noexcept {
  __m256i nodes = _mm256_sub_epi8(_mm256_set1_epi8(2), _mm256_cmpgt_epi8(flipped, table.middle));
#pragma GCC unroll 3
  for (int depth = 1; depth < 4; ++depth) {
    const __m256i reached = _mm256_cmpgt_epi8(flipped, _mm256_shuffle_epi8(table.thresholds, nodes));
    nodes = _mm256_sub_epi8(_mm256_add_epi8(nodes, nodes), reached);
  }
  return nodes;
}

// The next eight bytes for the lower half of a register, and from `second` on eight for the upper, in their lanes.
inline __m128i expand(const std::uint8_t* first, const std::uint8_t* second, unsigned mask) noexcept {
  const auto load_two = [](const std::uint8_t* low, const std::uint8_t* high) {
    return _mm_unpacklo_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(low)),
                              _mm_loadl_epi64(reinterpret_cast<const __m128i*>(high)));
  };
  return _mm_shuffle_epi8(load_two(first, second),
                          load_two(kExpandLower.orders[mask & 255], kExpandUpper.orders[mask >> 8 & 255]));
}

inline unsigned count_lanes(unsigned lanes) noexcept { return static_cast<unsigned>(_mm_popcnt_u32(lanes)); }

// The next symbols of 32 lanes, without those that are escaped, which `escaped` marks. In line also at -O2: a call
// would put every table into memory.
[[gnu::always_inline]] inline __m256i next_symbols(__m256i& low, __m256i& high, const Table& table,
                                                   const std::uint8_t*& in, unsigned& escaped) noexcept {
  const __m256i flipped = _mm256_xor_si256(low, _mm256_set1_epi8(static_cast<char>(0x80)));
  const __m256i nodes = nodes_of(table, flipped);
  const __m256i frequencies = _mm256_shuffle_epi8(table.frequencies, nodes);
  const __m256i excess = _mm256_sub_epi8(low, _mm256_shuffle_epi8(table.starts, nodes));
  escaped = static_cast<unsigned>(_mm256_movemask_epi8(_mm256_cmpgt_epi8(flipped, table.coded)));

  // frequency * high + excess, in 16 bits, of the lanes at even and at odd bytes.
  const __m256i low_bytes = _mm256_set1_epi16(0xff);
  const __m256i even =
      _mm256_add_epi16(_mm256_mullo_epi16(_mm256_and_si256(frequencies, low_bytes), _mm256_and_si256(high, low_bytes)),
                       _mm256_and_si256(excess, low_bytes));
  const __m256i odd = _mm256_add_epi16(
      _mm256_mullo_epi16(_mm256_srli_epi16(frequencies, 8), _mm256_srli_epi16(high, 8)), _mm256_srli_epi16(excess, 8));
  const __m256i next_low = _mm256_or_si256(_mm256_and_si256(even, low_bytes), _mm256_slli_epi16(odd, 8));
  const __m256i next_high = _mm256_or_si256(_mm256_srli_epi16(even, 8), _mm256_andnot_si256(low_bytes, odd));

  // States below 256 move up by a byte and take the next of the stream in.
  const __m256i grows = _mm256_cmpeq_epi8(next_high, _mm256_setzero_si256());
  const auto mask = static_cast<unsigned>(_mm256_movemask_epi8(grows));
  const std::uint8_t* const middle = in + count_lanes(mask & 0xffff);
  const __m128i front = expand(in, in + count_lanes(mask & 0xff), mask);
  const __m128i rear = expand(middle, in + count_lanes(mask & 0xffffff), mask >> 16);
  in += count_lanes(mask);
  high = _mm256_or_si256(next_high, _mm256_and_si256(grows, next_low));
  low = _mm256_or_si256(_mm256_andnot_si256(grows, next_low), _mm256_set_m128i(rear, front));
  return _mm256_shuffle_epi8(table.symbols, nodes);
}

// Puts the escapes in their places; rare enough for a branch and a loop.
inline __m256i put_escapes(__m256i symbols, unsigned escaped, const std::uint8_t*& escapes) noexcept {
  alignas(32) std::uint8_t bytes[kHalf];
  _mm256_store_si256(reinterpret_cast<__m256i*>(bytes), symbols);
  for (; escaped != 0; escaped = _blsr_u32(escaped)) bytes[_tzcnt_u32(escaped)] = *escapes++;
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes));
}

inline __m256i load(const std::uint8_t* from) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
inline void store(std::uint8_t* to, __m256i bytes) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
}

// Makes elements of 32 symbols and their rests.
template <std::size_t kBytes, bool kRotated>
[[gnu::always_inline]] inline void store_elements(__m256i symbols, const std::uint8_t* rest,
                                                  std::uint8_t* out) noexcept {
  if constexpr (kBytes == 2) {
    const auto turned = [](__m256i elements) {
      if constexpr (!kRotated) return elements;
      return _mm256_or_si256(_mm256_srli_epi16(elements, 1), _mm256_slli_epi16(elements, 15));
    };
    // Interleaving works within 16 bytes: the middle quarters change places first.
    const __m256i rests = _mm256_permute4x64_epi64(load(rest), 0xd8);
    const __m256i tops = _mm256_permute4x64_epi64(symbols, 0xd8);
    store(out, turned(_mm256_unpacklo_epi8(rests, tops)));
    store(out + 32, turned(_mm256_unpackhi_epi8(rests, tops)));
  } else {
    const __m256i spread =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1));
    alignas(32) std::uint8_t tops[kHalf];
    _mm256_store_si256(reinterpret_cast<__m256i*>(tops), symbols);
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      const auto* const from = reinterpret_cast<const __m128i*>(rest + 24 * q);
      const auto* const behind = reinterpret_cast<const __m128i*>(rest + 24 * q + 12);
      const __m256i rests = _mm256_set_m128i(_mm_loadu_si128(behind), _mm_loadu_si128(from));
      const __m256i top = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(tops + 8 * q)));
      __m256i elements = _mm256_or_si256(_mm256_shuffle_epi8(rests, spread), _mm256_slli_epi32(top, 24));
      if constexpr (kRotated)
        elements = _mm256_or_si256(_mm256_srli_epi32(elements, 1), _mm256_slli_epi32(elements, 31));
      store(out + 32 * q, elements);
    }
  }
}

template <std::size_t kBytes, bool kRotated>
void decode(RansDecoding& at, const RansDecodeTable& from, const std::uint8_t* rest, std::size_t steps,
            std::uint8_t* out) noexcept {
  constexpr std::size_t kRest = kHalf * (kBytes - 1);
  constexpr std::size_t kOut = kHalf * kBytes;
  if (from.single) {
    const __m256i symbols = _mm256_set1_epi8(static_cast<char>(from.symbols[0]));
    for (std::size_t i = 0; i < steps * kDecodeGroups * 2; ++i) {
      store_elements<kBytes, kRotated>(symbols, rest + i * kRest, out + i * kOut);
    }
    return;
  }
  const Table table = make_table(from);
  const std::uint8_t* escapes = at.escapes;
  const std::uint8_t* const limit = at.limit;
  for (; steps > 0; --steps) {
    for (std::size_t group = 0; group < kDecodeGroups; ++group) {
      const std::uint8_t* in = at.in[group] < limit ? at.in[group] : limit;
#pragma GCC unroll 2
      for (std::size_t lane = 0; lane < kDecodeLanes; lane += kHalf) {
        __m256i low = load(at.low[group] + lane);
        __m256i high = load(at.high[group] + lane);
        unsigned escaped;
        __m256i symbols = next_symbols(low, high, table, in, escaped);
        store(at.low[group] + lane, low);
        store(at.high[group] + lane, high);
        if (escaped != 0) [[unlikely]] {
          escapes = escapes < limit ? escapes : limit;
          symbols = put_escapes(symbols, escaped, escapes);
        }
        store_elements<kBytes, kRotated>(symbols, rest, out);
        rest += kRest;
        out += kOut;
      }
      at.in[group] = in;
    }
  }
  at.escapes = escapes;
}

}  // namespace

void rans_decode_avx2(RansDecoding& at, const RansDecodeTable& table, std::size_t element_bytes, bool rotated,
                      const std::uint8_t* rest, std::size_t steps, std::uint8_t* out) noexcept {
  if (element_bytes == 2) {
    (rotated ? decode<2, true> : decode<2, false>)(at, table, rest, steps, out);
  } else {
    (rotated ? decode<4, true> : decode<4, false>)(at, table, rest, steps, out);
  }
}

}  // namespace bitsnap::entropy
#endif
