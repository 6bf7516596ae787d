// The NEON encoding kernel of the lane coder: 16 lanes at a time, tables of 16 symbols in registers.
#include "entropy/rans_encode_kernel.hpp"

#include <arm_neon.h>

namespace bitsnap::entropy {
namespace {

constexpr std::size_t kRow = 16;  // lanes of a vector
constexpr std::size_t kRows = kEncodeLanes / kRow;

// For each mask of eight lanes, the order that moves the marked lanes to the end of eight bytes.
struct CompressTable {
  alignas(64) std::uint8_t orders[256][8];
};

constexpr CompressTable make_compress_table() noexcept {
  CompressTable table{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned place = 8;
    for (unsigned lane = 8; lane-- > 0;) {
      if ((mask >> lane & 1) != 0) table.orders[mask][--place] = static_cast<std::uint8_t>(lane);
    }
  }
  return table;
}

constexpr CompressTable kCompress = make_compress_table();

struct Table {
  uint8x16_t first;
  uint8x16_t window;
  uint8x16_t outlier;
  uint8x16_t starts;
  uint8x16_t frequencies;
  uint8x16_t reciprocals_low;
  uint8x16_t reciprocals_high;
};

inline Table make_table(const RansEncodeTable& from) noexcept {
  return {vdupq_n_u8(from.first),         vdupq_n_u8(from.window),    vdupq_n_u8(from.outlier),
          vld1q_u8(from.starts),          vld1q_u8(from.frequencies), vld1q_u8(from.reciprocals_low),
          vld1q_u8(from.reciprocals_high)};
}

// Four vectors: one byte for each lane of a group.
struct Group {
  uint8x16_t rows[kRows];
};

// Writes the bytes that `chosen` marks, in order, so that they end at `end`; returns where they begin. Up to eight
// bytes below that are overwritten.
[[gnu::always_inline]] inline std::uint8_t* write_below(std::uint8_t* end, const Group& chosen,
                                                        const Group& bytes) noexcept {
  const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  const uint8x16_t front = vpaddq_u8(vandq_u8(chosen.rows[0], bits), vandq_u8(chosen.rows[1], bits));
  const uint8x16_t rear = vpaddq_u8(vandq_u8(chosen.rows[2], bits), vandq_u8(chosen.rows[3], bits));
  const uint8x16_t quarters = vpaddq_u8(front, rear);
  const uint8x8_t masks = vget_low_u8(vpaddq_u8(quarters, quarters));  // a bit for each lane, one byte for eight lanes
  const std::uint64_t mask = vget_lane_u64(vreinterpret_u64_u8(masks), 0);
  // In each byte, the number of bytes written up to and including these eight lanes.
  const std::uint64_t counts = vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(masks)), 0) * 0x0101010101010101;
  std::uint8_t* const begin = end - (counts >> 56);
#pragma GCC unroll 8
  for (unsigned i = 8; i-- > 0;) {
    const uint8x16_t row = bytes.rows[i / 2];
    const uint8x8_t order = vld1_u8(kCompress.orders[mask >> (8 * i) & 255]);
    vst1_u8(begin + (counts >> (8 * i) & 255) - 8, vtbl1_u8(i % 2 == 0 ? vget_low_u8(row) : vget_high_u8(row), order));
  }
  return begin;
}

struct Divided {
  uint16x8_t quotient;
  uint16x8_t remainder;
};

// Divides 16-bit states by frequencies; see rans_reciprocal().
inline Divided divide(uint8x16_t states, uint16x8_t frequencies, uint8x16_t reciprocals) noexcept {
  const uint16x8_t x = vreinterpretq_u16_u8(states);
  const uint16x8_t by = vreinterpretq_u16_u8(reciprocals);
  const uint32x4_t front = vmull_u16(vget_low_u16(x), vget_low_u16(by));
  const uint32x4_t rear = vmull_high_u16(x, by);
  const uint16x8_t near = vuzp2q_u16(vreinterpretq_u16_u32(front), vreinterpretq_u16_u32(rear));
  const uint16x8_t over = vmlsq_u16(x, near, frequencies);
  const uint16x8_t more = vcgeq_u16(over, frequencies);
  return {vsubq_u16(near, more), vsubq_u16(over, vandq_u16(more, frequencies))};
}

inline uint8x16_t lower_bytes(uint16x8_t front, uint16x8_t rear) noexcept {
  return vuzp1q_u8(vreinterpretq_u8_u16(front), vreinterpretq_u8_u16(rear));
}

// The index of each symbol in the table.
inline uint8x16_t index_of(const Table& table, uint8x16_t symbols) noexcept {
  const uint8x16_t in_window = vminq_u8(vsubq_u8(symbols, table.first), table.window);
  return vbslq_u8(vceqq_u8(symbols, table.outlier), vdupq_n_u8(kOutlierIndex), in_window);
}

// Codes the symbols of 16 lanes; the lanes that `shrinks` marks have already given up their lower byte.
[[gnu::always_inline]] inline void put_symbols(uint8x16_t index, uint8x16_t shrinks, uint8x16_t frequencies,
                                               uint8x16_t& low, uint8x16_t& high, const Table& table) noexcept {
  low = vbslq_u8(shrinks, high, low);
  high = vbicq_u8(high, shrinks);
  const uint8x16_t reciprocals_low = vqtbl1q_u8(table.reciprocals_low, index);
  const uint8x16_t reciprocals_high = vqtbl1q_u8(table.reciprocals_high, index);
  const Divided front =
      divide(vzip1q_u8(low, high), vmovl_u8(vget_low_u8(frequencies)), vzip1q_u8(reciprocals_low, reciprocals_high));
  const Divided rear =
      divide(vzip2q_u8(low, high), vmovl_high_u8(frequencies), vzip2q_u8(reciprocals_low, reciprocals_high));
  high = lower_bytes(front.quotient, rear.quotient);
  low = vaddq_u8(lower_bytes(front.remainder, rear.remainder), vqtbl1q_u8(table.starts, index));
}

// `of` shifted left by one bit, with the topmost bit of `below` at the bottom.
inline uint8x16_t shifted(uint8x16_t of, uint8x16_t below) noexcept { return vsriq_n_u8(vshlq_n_u8(of, 1), below, 7); }

// Writes the lower bytes of 16 elements, and nothing after them; returns the symbols.
template <std::size_t kBytes, bool kRotated>
[[gnu::always_inline]] inline uint8x16_t take_apart(const std::uint8_t* in,
                                                    [[maybe_unused]] std::uint8_t* rest) noexcept {
  if constexpr (kBytes == 1) {
    return vld1q_u8(in);
  } else if constexpr (kBytes == 2) {
    const auto [a, b] = vld2q_u8(in).val;
    vst1q_u8(rest, kRotated ? shifted(a, b) : a);
    return kRotated ? shifted(b, a) : b;
  } else {
    const auto [a, b, c, d] = vld4q_u8(in).val;
    uint8x16x3_t rests = {{a, b, c}};
    if constexpr (kRotated) rests = {{shifted(a, d), shifted(b, a), shifted(c, b)}};
    vst3q_u8(rest, rests);
    return kRotated ? shifted(d, c) : d;
  }
}

template <std::size_t kBytes, bool kRotated>
void encode(RansEncoding& at, const RansEncodeTable& from, const std::uint8_t* in, std::size_t rounds,
            std::uint8_t* rest) noexcept {
  constexpr std::size_t kIn = kRow * kBytes;
  constexpr std::size_t kRest = kRow * (kBytes - 1);
  if (from.single) {
    for (std::size_t i = 0; i < rounds * kEncodeGroups * kRows; ++i) {
      take_apart<kBytes, kRotated>(in + i * kIn, rest + i * kRest);
    }
    return;
  }
  const Table table = make_table(from);
  for (std::size_t round = rounds; round-- > 0;) {
    for (std::size_t group = kEncodeGroups; group-- > 0;) {
      const std::size_t number = (round * kEncodeGroups + group) * kRows;
      Group symbols;
      Group index;
      Group escaped;
      Group frequencies;
      Group low;
      Group high;
      Group shrinks;
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kRows; ++i) {
        symbols.rows[i] = take_apart<kBytes, kRotated>(in + (number + i) * kIn, rest + (number + i) * kRest);
        index.rows[i] = index_of(table, symbols.rows[i]);
        escaped.rows[i] = vceqq_u8(index.rows[i], table.window);
        frequencies.rows[i] = vqtbl1q_u8(table.frequencies, index.rows[i]);
        low.rows[i] = vld1q_u8(at.low[group] + i * kRow);
        high.rows[i] = vld1q_u8(at.high[group] + i * kRow);
        // States that the symbol would carry beyond 16 bits give up their lower byte.
        shrinks.rows[i] = vcgeq_u8(high.rows[i], frequencies.rows[i]);
      }
      const uint8x16_t any =
          vorrq_u8(vorrq_u8(escaped.rows[0], escaped.rows[1]), vorrq_u8(escaped.rows[2], escaped.rows[3]));
      if (vmaxvq_u8(any) != 0) [[unlikely]]
        at.escapes = write_below(at.escapes, escaped, symbols);
      at.out[group] = write_below(at.out[group], shrinks, low);
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kRows; ++i) {
        put_symbols(index.rows[i], shrinks.rows[i], frequencies.rows[i], low.rows[i], high.rows[i], table);
        vst1q_u8(at.low[group] + i * kRow, low.rows[i]);
        vst1q_u8(at.high[group] + i * kRow, high.rows[i]);
      }
    }
  }
}

}  // namespace

constinit const RansEncodeKernels RansEncodeKernels::kNeon = {{{entropy::encode<1, false>, entropy::encode<1, false>},
                                                               {entropy::encode<2, false>, entropy::encode<2, true>},
                                                               {entropy::encode<4, false>, entropy::encode<4, true>}}};

}  // namespace bitsnap::entropy
