// The scalar decoding kernel of the lane coder: arithmetic in 16-byte vectors, and look-ups one by one in a table of
// the 256 slots.
//
// Only escapes have a branch, and no lane waits for another: instead of taking a byte, a lane notes the place of its
// next lower byte, among the states' bytes or in a copy of the stream, and reads it in the next round.
#include "entropy/rans_decode_kernel.hpp"

#include "entropy/vector16.hpp"

namespace bitsnap::entropy {
namespace {

constexpr std::size_t kRow = 16;  // lanes that are decoded together, as a vector of even lanes and one of odd lanes
constexpr std::size_t kRowsOfGroup = kDecodeLanes / kRow;
constexpr std::size_t kRows = kDecodeGroups * kRowsOfGroup;

// The entry of a slot: the frequency in bits 0-7, the slot minus the start in bits 8-15, whether it is escaped in bit
// 16, the symbol in bits 24-31.
using Entry = std::uint32_t;
constexpr Entry kEscaped = 1U << 16;

void fill_entries(const RansDecodeTable& table, Entry* entries) noexcept {
  unsigned index = 0;
  for (unsigned slot = 0; slot < 256; ++slot) {
    while (index < 15 && table.starts[index + 1] <= slot) ++index;
    entries[slot] = Entry{table.frequencies[index]} | Entry{slot - table.starts[index]} << 8 |
                    Entry{table.symbols[index]} << 24 | (index >= table.escape_index ? kEscaped : 0);
  }
}

constexpr std::size_t kNext = kRow;  // of the window: the stream bytes for the first half of the lanes
constexpr std::size_t kHalf = kRow / 2;
constexpr U8x16 kLanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// The states of the lanes of a row.
struct Row {
  alignas(16) std::uint8_t window[2 * kRow];  // lower bytes of the states, then eight stream bytes for each half
  alignas(16) std::uint8_t places[kRow];      // of each lane's lower byte in the window
  alignas(16) std::uint8_t high[kRow];
};

// The symbol is in the upper byte of 16 bits.
template <std::size_t kBytes, bool kRotated>
inline void store_element(std::uint32_t symbol, [[maybe_unused]] const std::uint8_t* rest, std::uint8_t* out) noexcept {
  if constexpr (kBytes == 1) {
    *out = static_cast<std::uint8_t>(symbol >> 8);
  } else if constexpr (kBytes == 2) {
    auto element = static_cast<std::uint16_t>(symbol | rest[0]);
    if constexpr (kRotated) element = static_cast<std::uint16_t>(element >> 1 | element << 15);
    __builtin_memcpy(out, &element, 2);
  } else {
    std::uint16_t low;
    __builtin_memcpy(&low, rest, 2);
    std::uint32_t element = (symbol | rest[2]) << 16 | low;
    if constexpr (kRotated) element = element >> 1 | element << 31;
    __builtin_memcpy(out, &element, 4);
  }
}

// Four elements of 4 bytes; reads one byte after their lower bytes. The symbols are in the top bytes.
template <bool kRotated>
[[gnu::always_inline]] inline void store_four(U16x8 symbols, const std::uint8_t* rest, std::uint8_t* out) noexcept {
  std::uint32_t rests[4];
  for (std::size_t i = 0; i < 4; ++i) __builtin_memcpy(&rests[i], rest + 3 * i, 4);
  U32x4 elements = (U32x4{rests[0], rests[1], rests[2], rests[3]} & 0xffffff) | bits_as<U32x4>(symbols);
  if constexpr (kRotated) elements = elements >> 1 | elements << 31;
  store16(out, elements);
}

// The elements of a row, whose symbols are in the upper bytes. If a lower byte is not 0, its element may be wrong.
template <std::size_t kBytes, bool kRotated>
[[gnu::always_inline]] inline void store_elements(U16x8 even, U16x8 odd, [[maybe_unused]] const std::uint8_t* rest,
                                                  std::uint8_t* out) noexcept {
  if constexpr (kBytes == 1) {
    store16(out, join_upper_bytes(even, odd));
  } else if constexpr (kBytes == 2) {
    const auto rests = load16<U16x8>(rest);
    even |= rests & 0xff;
    odd |= rests >> 8;
    if constexpr (kRotated) {
      even = even >> 1 | even << 15;
      odd = odd >> 1 | odd << 15;
    }
    store16(out, zip_lower(even, odd));
    store16(out + 16, zip_upper(even, odd));
  } else {
    constexpr U16x8 kZero = {};
    const U16x8 front = zip_lower(even, odd) & 0xff00;
    const U16x8 rear = zip_upper(even, odd) & 0xff00;
    store_four<kRotated>(zip_lower(kZero, front), rest, out);
    store_four<kRotated>(zip_upper(kZero, front), rest + 12, out + 16);
    store_four<kRotated>(zip_lower(kZero, rear), rest + 24, out + 32);
    store_four<kRotated>(zip_upper(kZero, rear), rest + 36, out + 48);
  }
}

// The next symbols of a row, of even and of odd lanes, in the upper bytes. Nonzero lower bytes mark escaped symbols.
struct Symbols {
  U16x8 even;
  U16x8 odd;

  [[nodiscard]] bool any_escaped() const noexcept {
    const auto escaped = bits_as<U64x2>((even | odd) & (kEscaped >> 16));
    return (escaped[0] | escaped[1]) != 0;
  }
  [[nodiscard]] bool escaped(std::size_t lane) const noexcept {
    return ((lane % 2 == 0 ? even : odd)[lane / 2] & (kEscaped >> 16)) != 0;
  }
};

[[gnu::always_inline]] inline Symbols next_symbols(Row& row, const Entry* entries, const std::uint8_t*& in) noexcept {
  const SplitNumbers even = split_numbers([&](std::size_t i) { return entries[row.window[row.places[2 * i]]]; });
  const SplitNumbers odd = split_numbers([&](std::size_t i) { return entries[row.window[row.places[2 * i + 1]]]; });
  const auto high = load16<U16x8>(row.high);
  const U16x8 even_states = (even.lower & 0xff) * (high & 0xff) + (even.lower >> 8);
  const U16x8 odd_states = (odd.lower & 0xff) * (high >> 8) + (odd.lower >> 8);
  const U8x16 low = join_lower_bytes(even_states, odd_states);
  const U8x16 top = join_upper_bytes(even_states, odd_states);
  const auto grows = bits_as<U8x16>(top == 0);
  store16(row.window, low);
  store16(row.high, top | (low & grows));

  // The number of bytes that the lanes of its half take up to and including each lane.
  auto taken = bits_as<U64x2>(grows & 1);
  taken += taken << 8;
  taken += taken << 16;
  taken += taken << 32;
  constexpr U8x16 kBefore = (kLanes & kHalf) + (kNext - 1);
  store16(row.places, ((bits_as<U8x16>(taken) + kBefore) & grows) | (kLanes & ~grows));
  __builtin_memcpy(row.window + kNext, in, kHalf);
  in += taken[0] >> 56;
  __builtin_memcpy(row.window + kNext + kHalf, in, kHalf);
  in += taken[1] >> 56;
  return {even.upper, odd.upper};
}

template <std::size_t kBytes, bool kRotated>
void decode(RansDecoding& at, const RansDecodeTable& table, const std::uint8_t* rest, std::size_t rounds,
            std::uint8_t* out) noexcept {
  if (table.single) {
    for (std::size_t i = 0; i < rounds * kDecodeGroups * kDecodeLanes; ++i) {
      store_element<kBytes, kRotated>(std::uint32_t{table.symbols[0]} << 8, rest + i * (kBytes - 1), out + i * kBytes);
    }
    return;
  }
  Entry entries[256];
  fill_entries(table, entries);
  Row rows[kRows];
  for (std::size_t number = 0; number < kRows; ++number) {
    const std::size_t lane = number % kRowsOfGroup * kRow;
    store16(rows[number].window, load16<U8x16>(at.low[number / kRowsOfGroup] + lane));
    store16(rows[number].high, load16<U8x16>(at.high[number / kRowsOfGroup] + lane));
    store16(rows[number].places, kLanes);
  }
  const std::uint8_t* escapes = at.escapes;
  for (; rounds > 0; --rounds) {
    for (std::size_t group = 0; group < kDecodeGroups; ++group) {
      const std::uint8_t* in = at.in[group] < at.limit ? at.in[group] : at.limit;
      for (std::size_t number = group * kRowsOfGroup; number < (group + 1) * kRowsOfGroup; ++number) {
        const Symbols symbols = next_symbols(rows[number], entries, in);
        store_elements<kBytes, kRotated>(symbols.even, symbols.odd, rest, out);
        if (symbols.any_escaped()) [[unlikely]] {
          escapes = escapes < at.limit ? escapes : at.limit;
          for (std::size_t lane = 0; lane < kRow; ++lane) {
            if (!symbols.escaped(lane)) continue;
            store_element<kBytes, kRotated>(std::uint32_t{*escapes++} << 8, rest + lane * (kBytes - 1),
                                            out + lane * kBytes);
          }
        }
        rest += kRow * (kBytes - 1);
        out += kRow * kBytes;
      }
      at.in[group] = in;
    }
  }
  at.escapes = escapes;
  for (std::size_t number = 0; number < kRows; ++number) {
    const Row& row = rows[number];
    std::uint8_t* const low = at.low[number / kRowsOfGroup] + number % kRowsOfGroup * kRow;
    for (std::size_t lane = 0; lane < kRow; ++lane) low[lane] = row.window[row.places[lane]];
    store16(at.high[number / kRowsOfGroup] + number % kRowsOfGroup * kRow, load16<U8x16>(row.high));
  }
}

}  // namespace

constinit const RansDecodeKernels RansDecodeKernels::kScalar = {
    {{entropy::decode<1, false>, entropy::decode<1, false>},
     {entropy::decode<2, false>, entropy::decode<2, true>},
     {entropy::decode<4, false>, entropy::decode<4, true>}}};

}  // namespace bitsnap::entropy
