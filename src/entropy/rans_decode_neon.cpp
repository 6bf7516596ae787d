// The NEON decoding kernel of the lane coder: 16 lanes at a time, tables of 16 symbols in registers.
#include "entropy/rans_decode_kernel.hpp"

#include <arm_neon.h>

#include "entropy/rans_expand_table.hpp"

namespace bitsnap::entropy {
namespace {

constexpr std::size_t kRow = 16;  // lanes of a vector
constexpr std::size_t kRows = kDecodeLanes / kRow;

struct Table {
  uint8x16_t quarters[3];  // the starts of the symbol indexes 4, 8 and 12
  uint8x16_t within[3];    // for each quarter, the starts of its other three indexes
  uint8x16_t symbols;
  uint8x16_t starts;
  uint8x16_t frequencies;
};

inline Table make_table(const RansDecodeTable& from) noexcept {
  Table table;
  for (unsigned i = 0; i < 3; ++i) {
    std::uint8_t within[16] = {};
    for (unsigned quarter = 0; quarter < 4; ++quarter) within[quarter] = from.starts[4 * quarter + i + 1];
    table.quarters[i] = vdupq_n_u8(from.starts[4 * i + 4]);
    table.within[i] = vld1q_u8(within);
  }
  table.symbols = vld1q_u8(from.symbols);
  table.starts = vld1q_u8(from.starts);
  table.frequencies = vld1q_u8(from.frequencies);
  return table;
}

// The symbol index of each slot: first the quarter, then the place within it. The compares of each stage are
// independent.
inline uint8x16_t indexes_of(const Table& table, uint8x16_t slots) noexcept {
  const uint8x16_t lower = vcgeq_u8(slots, table.quarters[0]);
  const uint8x16_t middle = vcgeq_u8(slots, table.quarters[1]);
  const uint8x16_t upper = vcgeq_u8(slots, table.quarters[2]);
  const uint8x16_t quarters = vsubq_u8(vsubq_u8(vdupq_n_u8(0), lower), vaddq_u8(middle, upper));
  const uint8x16_t first = vcgeq_u8(slots, vqtbl1q_u8(table.within[0], quarters));
  const uint8x16_t second = vcgeq_u8(slots, vqtbl1q_u8(table.within[1], quarters));
  const uint8x16_t third = vcgeq_u8(slots, vqtbl1q_u8(table.within[2], quarters));
  return vsubq_u8(vsubq_u8(vshlq_n_u8(quarters, 2), first), vaddq_u8(second, third));
}

// The states of 16 lanes and the symbols decoded from them.
struct Row {
  uint8x16_t low;
  uint8x16_t high;
  uint8x16_t indexes;
  uint8x16_t grows;  // the lanes that still have to take a byte from the stream
};

[[gnu::always_inline]] inline Row next_row(uint8x16_t low, uint8x16_t high, const Table& table) noexcept {
  Row row;
  row.indexes = indexes_of(table, low);
  const uint8x16_t frequencies = vqtbl1q_u8(table.frequencies, row.indexes);
  const uint8x16_t excess = vsubq_u8(low, vqtbl1q_u8(table.starts, row.indexes));
  // frequency * high + excess in 16 bits.
  const uint16x8_t front = vaddw_u8(vmull_u8(vget_low_u8(frequencies), vget_low_u8(high)), vget_low_u8(excess));
  const uint16x8_t rear = vaddw_high_u8(vmull_high_u8(frequencies, high), excess);
  row.low = vuzp1q_u8(vreinterpretq_u8_u16(front), vreinterpretq_u8_u16(rear));
  row.high = vuzp2q_u8(vreinterpretq_u8_u16(front), vreinterpretq_u8_u16(rear));
  // States below 256 take a byte.
  row.grows = vceqzq_u8(row.high);
  row.high = vbslq_u8(row.grows, row.low, row.high);
  return row;
}

// A bit for each of 64 lanes: one byte for eight lanes.
inline uint8x8_t mask_of(const Row* rows) noexcept {
  const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  const uint8x16_t front = vpaddq_u8(vandq_u8(rows[0].grows, bits), vandq_u8(rows[1].grows, bits));
  const uint8x16_t rear = vpaddq_u8(vandq_u8(rows[2].grows, bits), vandq_u8(rows[3].grows, bits));
  const uint8x16_t quarters = vpaddq_u8(front, rear);
  return vget_low_u8(vpaddq_u8(quarters, quarters));
}

// Moves the next bytes of the stream into the lanes that `grows` marks; returns the rest of the stream.
[[gnu::always_inline]] inline const std::uint8_t* take_in(Row* rows, const std::uint8_t* in) noexcept {
  const uint8x8_t masks = mask_of(rows);
  const std::uint64_t mask = vget_lane_u64(vreinterpret_u64_u8(masks), 0);
  // In each byte, the number of bytes taken up to and including these eight lanes.
  const std::uint64_t taken = vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(masks)), 0) * 0x0101010101010101;
#pragma GCC unroll 4
  for (unsigned i = 0; i < kRows; ++i) {
    const uint8x16_t order =
        vaddq_u8(vld1q_u8(kExpand.lower[mask >> (16 * i) & 255]), vld1q_u8(kExpand.upper[mask >> (16 * i + 8) & 255]));
    const uint8x16_t bytes = vld1q_u8(in + (i == 0 ? 0 : taken >> (16 * i - 8) & 255));
    rows[i].low = vbslq_u8(rows[i].grows, vqtbl1q_u8(bytes, order), rows[i].low);
  }
  return in + (taken >> 56);
}

// Inserts the escaped symbols; rare enough for a loop.
inline uint8x16_t put_escapes(uint8x16_t symbols, uint8x16_t indexes, unsigned escape_index,
                              const std::uint8_t*& escapes) noexcept {
  std::uint8_t bytes[kRow];
  std::uint8_t their_indexes[kRow];
  vst1q_u8(bytes, symbols);
  vst1q_u8(their_indexes, indexes);
  for (std::size_t lane = 0; lane < kRow; ++lane) {
    if (their_indexes[lane] >= escape_index) bytes[lane] = *escapes++;
  }
  return vld1q_u8(bytes);
}

// The upper byte of `of` shifted right by one bit, with the lowest bit of `above` on top.
inline uint8x16_t shifted(uint8x16_t of, uint8x16_t above) noexcept { return vsliq_n_u8(vshrq_n_u8(of, 1), above, 7); }

// Joins 16 symbols and the lower bytes to elements.
template <std::size_t kBytes, bool kRotated>
[[gnu::always_inline]] inline void store_elements(uint8x16_t symbols, [[maybe_unused]] const std::uint8_t* rest,
                                                  std::uint8_t* out) noexcept {
  if constexpr (kBytes == 1) {
    vst1q_u8(out, symbols);
  } else if constexpr (kBytes == 2) {
    const uint8x16_t rests = vld1q_u8(rest);
    uint8x16x2_t elements = {{rests, symbols}};
    if constexpr (kRotated) elements = {{shifted(rests, symbols), shifted(symbols, rests)}};
    vst2q_u8(out, elements);
  } else {
    const auto [a, b, c] = vld3q_u8(rest).val;
    uint8x16x4_t elements = {{a, b, c, symbols}};
    if constexpr (kRotated) elements = {{shifted(a, b), shifted(b, c), shifted(c, symbols), shifted(symbols, a)}};
    vst4q_u8(out, elements);
  }
}

template <std::size_t kBytes, bool kRotated>
void decode(RansDecoding& at, const RansDecodeTable& from, const std::uint8_t* rest, std::size_t rounds,
            std::uint8_t* out) noexcept {
  constexpr std::size_t kRest = kRow * (kBytes - 1);
  constexpr std::size_t kOut = kRow * kBytes;
  if (from.single) {
    const uint8x16_t symbols = vdupq_n_u8(from.symbols[0]);
    for (std::size_t i = 0; i < rounds * kDecodeGroups * kRows; ++i) {
      store_elements<kBytes, kRotated>(symbols, rest + i * kRest, out + i * kOut);
    }
    return;
  }
  const Table table = make_table(from);
  const std::uint8_t* escapes = at.escapes;
  const std::uint8_t* const limit = at.limit;
  for (; rounds > 0; --rounds) {
    for (std::size_t group = 0; group < kDecodeGroups; ++group) {
      Row rows[kRows];
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kRows; ++i) {
        rows[i] = next_row(vld1q_u8(at.low[group] + i * kRow), vld1q_u8(at.high[group] + i * kRow), table);
      }
      at.in[group] = take_in(rows, at.in[group] < limit ? at.in[group] : limit);
      const uint8x16_t last =
          vmaxq_u8(vmaxq_u8(rows[0].indexes, rows[1].indexes), vmaxq_u8(rows[2].indexes, rows[3].indexes));
      const bool escaped = vmaxvq_u8(last) >= from.escape_index;
      if (escaped) [[unlikely]]
        escapes = escapes < limit ? escapes : limit;
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kRows; ++i) {
        vst1q_u8(at.low[group] + i * kRow, rows[i].low);
        vst1q_u8(at.high[group] + i * kRow, rows[i].high);
        uint8x16_t symbols = vqtbl1q_u8(table.symbols, rows[i].indexes);
        if (escaped) [[unlikely]]
          symbols = put_escapes(symbols, rows[i].indexes, from.escape_index, escapes);
        store_elements<kBytes, kRotated>(symbols, rest, out);
        rest += kRest;
        out += kOut;
      }
    }
  }
  at.escapes = escapes;
}

}  // namespace

constinit const RansDecodeKernels RansDecodeKernels::kNeon = {{{entropy::decode<1, false>, entropy::decode<1, false>},
                                                               {entropy::decode<2, false>, entropy::decode<2, true>},
                                                               {entropy::decode<4, false>, entropy::decode<4, true>}}};

}  // namespace bitsnap::entropy
