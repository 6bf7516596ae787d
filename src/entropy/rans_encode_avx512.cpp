// The AVX-512 (VBMI, VBMI2) encoding kernel of the lane coder: the 64 states of a group are two registers of bytes, and
// every table lies in registers.
#include "entropy/rans_encode_kernel.hpp"

#include "entropy/rans_lanes_avx512.hpp"

namespace bitsnap::entropy {
namespace {

struct Table {
  __m512i first;
  __m512i window;
  __m512i outlier;
  CodeTable code;
};

inline Table make_table(const RansEncodeTable& from) noexcept {
  Table table;
  table.first = _mm512_set1_epi8(static_cast<char>(from.first));
  table.window = _mm512_set1_epi8(static_cast<char>(from.window));
  table.outlier = _mm512_set1_epi8(static_cast<char>(from.outlier));
  table.code = {broadcast_table(from.starts), broadcast_table(from.frequencies), broadcast_table(from.reciprocals_low),
                broadcast_table(from.reciprocals_high)};
  return table;
}

// Codes one symbol in each lane of a group.
inline void put_symbols(__m512i symbols, EncodeLanes& group, const Table& table, std::uint8_t*& escapes) noexcept {
  __m512i index = _mm512_min_epu8(_mm512_sub_epi8(symbols, table.first), table.window);
  index = _mm512_mask_mov_epi8(index, _mm512_cmpeq_epi8_mask(symbols, table.outlier), _mm512_set1_epi8(kOutlierIndex));
  const __mmask64 escaped = _mm512_cmpeq_epi8_mask(index, table.window);
  if (escaped != 0) escapes = write_below(escapes, escaped, symbols);
  put_indexes(index, group, table.code);
}

// Splits 64 elements into symbols and lower bytes.
template <std::size_t kBytes, bool kRotated>
struct Elements;

template <bool kRotated>
struct Elements<1, kRotated> {
  static __m512i take_apart(const std::uint8_t* in, std::uint8_t*) noexcept { return _mm512_loadu_si512(in); }
};

template <bool kRotated>
struct Elements<2, kRotated> {
  // Even bytes first, then odd ones; the other way round for the second vector, so one blend and one shuffle join the
  // halves.
  const __m512i front = byte_order([](unsigned at) { return at % 32 * 2 + at / 32; });
  const __m512i rear = byte_order([](unsigned at) { return at % 32 * 2 + 1 - at / 32; });

  static __m512i turned(__m512i elements) noexcept {
    return kRotated ? _mm512_shldi_epi16(elements, elements, 1) : elements;
  }
  __m512i take_apart(const std::uint8_t* in, std::uint8_t* rest) const noexcept {
    const __m512i even_odd = _mm512_permutexvar_epi8(front, turned(_mm512_loadu_si512(in)));
    const __m512i odd_even = _mm512_permutexvar_epi8(rear, turned(_mm512_loadu_si512(in + 64)));
    _mm512_storeu_si512(rest, _mm512_mask_blend_epi64(0xf0, even_odd, odd_even));
    return _mm512_shuffle_i64x2(even_odd, odd_even, 0x4e);
  }
};

template <bool kRotated>
struct Elements<4, kRotated> {
  // Puts the symbols of quarter q of 64 elements into the 128-bit lane 3 - q and its lower bytes into the following
  // lanes, so blends alone join the lower bytes of the quarters to three vectors.
  static __m512i order_of(unsigned quarter) noexcept {
    return byte_order([=](unsigned at) {
      const unsigned turned = (at + 16 * quarter) % 64;
      return turned < 48 ? turned / 3 * 4 + turned % 3 : turned % 16 * 4 + 3;
    });
  }
  const __m512i orders[4] = {order_of(0), order_of(1), order_of(2), order_of(3)};

  __m512i take_apart(const std::uint8_t* in, std::uint8_t* rest) const noexcept {
    __m512i quarters[4];
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      __m512i elements = _mm512_loadu_si512(in + 64 * q);
      if constexpr (kRotated) elements = _mm512_rol_epi32(elements, 1);
      quarters[q] = _mm512_permutexvar_epi8(orders[q], elements);
    }
    _mm512_storeu_si512(rest, _mm512_mask_blend_epi64(0xc0, quarters[0], quarters[1]));
    _mm512_storeu_si512(rest + 64, _mm512_mask_blend_epi64(0xf0, quarters[1], quarters[2]));
    _mm512_storeu_si512(rest + 128, _mm512_mask_blend_epi64(0xfc, quarters[2], quarters[3]));
    const __m512i rear = _mm512_mask_blend_epi64(0x30, quarters[0], quarters[1]);
    const __m512i front = _mm512_mask_blend_epi64(0x0c, quarters[3], quarters[2]);
    const __m512i backwards = _mm512_mask_blend_epi64(0xf0, front, rear);
    return _mm512_shuffle_i64x2(backwards, backwards, 0x1b);
  }
};

template <std::size_t kBytes, bool kRotated>
void encode(RansEncoding& at, const RansEncodeTable& from, const std::uint8_t* in, std::size_t rounds,
            std::uint8_t* rest) noexcept {
  constexpr std::size_t kIn = kEncodeLanes * kBytes;
  constexpr std::size_t kRest = kEncodeLanes * (kBytes - 1);
  const Elements<kBytes, kRotated> elements;
  if (from.single) {
    for (std::size_t i = 0; i < rounds * kEncodeGroups; ++i) elements.take_apart(in + i * kIn, rest + i * kRest);
    return;
  }
  const Table table = make_table(from);
  LaneGroups<EncodeLanes> groups(at, at.out);
  std::uint8_t* escapes = at.escapes;
  in += rounds * kEncodeGroups * kIn;
  rest += rounds * kEncodeGroups * kRest;
  const auto put = [&](EncodeLanes& group) {
    in -= kIn;
    rest -= kRest;
    prefetch_before(in, kIn);
    put_symbols(elements.take_apart(in, rest), group, table, escapes);
  };
  for (; rounds > 0; --rounds) groups.down(put);
  groups.store(at, at.out);
  at.escapes = escapes;
}

}  // namespace

constinit const RansEncodeKernels RansEncodeKernels::kAvx512 = {
    {{entropy::encode<1, false>, entropy::encode<1, false>},
     {entropy::encode<2, false>, entropy::encode<2, true>},
     {entropy::encode<4, false>, entropy::encode<4, true>}}};

}  // namespace bitsnap::entropy
