// The scalar encoding kernel of the lane coder: arithmetic in 16-byte vectors, and look-ups one by one in a table of
// the 256 symbols.
//
// Only escapes have a branch, and no lane waits for another: each lane writes a byte at its place; if it has none to
// give, the next lane that has one overwrites it.
#include "entropy/rans_encode_kernel.hpp"

#include "entropy/vector16.hpp"

namespace bitsnap::entropy {
namespace {

constexpr std::size_t kRow = 16;  // lanes that are encoded together, as a vector of even lanes and one of odd lanes
constexpr std::size_t kHalf = kRow / 2;
constexpr std::size_t kRowsOfGroup = kEncodeLanes / kRow;
constexpr std::size_t kRows = kEncodeGroups * kRowsOfGroup;

// The entry of a symbol: the frequency in bits 0-7, the start in bits 8-15, the reciprocal in bits 16-31. Only escaped
// symbols have the escape's start.
using Entry = std::uint32_t;

Entry entry_of(const RansEncodeTable& table, unsigned index) noexcept {
  return Entry{table.frequencies[index]} | Entry{table.starts[index]} << 8 | Entry{table.reciprocals_low[index]} << 16 |
         Entry{table.reciprocals_high[index]} << 24;
}

void fill_entries(const RansEncodeTable& table, Entry* entries) noexcept {
  for (unsigned symbol = 0; symbol < 256; ++symbol) {
    const unsigned distance = (symbol - table.first) & 255;
    const unsigned in_window = distance < table.window ? distance : table.window;
    entries[symbol] = entry_of(table, symbol == table.outlier ? kOutlierIndex : in_window);
  }
}

// Writes the lower bytes of the element and returns its symbol.
template <std::size_t kBytes, bool kRotated>
inline std::uint8_t take_apart(const std::uint8_t* in, [[maybe_unused]] std::uint8_t* rest) noexcept {
  if constexpr (kBytes == 1) {
    return *in;
  } else if constexpr (kBytes == 2) {
    std::uint16_t element;
    __builtin_memcpy(&element, in, 2);
    if constexpr (kRotated) element = static_cast<std::uint16_t>(element << 1 | element >> 15);
    rest[0] = static_cast<std::uint8_t>(element);
    return static_cast<std::uint8_t>(element >> 8);
  } else {
    std::uint32_t element;
    __builtin_memcpy(&element, in, 4);
    if constexpr (kRotated) element = element << 1 | element >> 31;
    const auto low = static_cast<std::uint16_t>(element);
    __builtin_memcpy(rest, &low, 2);
    rest[2] = static_cast<std::uint8_t>(element >> 16);
    return static_cast<std::uint8_t>(element >> 24);
  }
}

// Writes the lower bytes and the symbols of a row.
template <std::size_t kBytes, bool kRotated>
[[gnu::always_inline]] inline void take_row_apart(const std::uint8_t* in, [[maybe_unused]] std::uint8_t* rest,
                                                  std::uint8_t* symbols) noexcept {
  if constexpr (kBytes == 1) {
    store16(symbols, load16<U8x16>(in));
  } else if constexpr (kBytes == 2) {
    auto front = load16<U16x8>(in);
    auto rear = load16<U16x8>(in + 16);
    if constexpr (kRotated) {
      front = front << 1 | front >> 15;
      rear = rear << 1 | rear >> 15;
    }
    store16(rest, pack_lower_bytes(front, rear));
    store16(symbols, pack_lower_bytes(front >> 8, rear >> 8));
  } else {
    for (std::size_t i = 0; i < kRow; ++i) symbols[i] = take_apart<kBytes, kRotated>(in + 4 * i, rest + 3 * i);
  }
}

// Codes a symbol in each of eight lanes. `shrinks` marks lanes whose lower byte goes to the stream first, because the
// symbol would carry the state beyond 16 bits.
[[gnu::always_inline]] inline U16x8 put_symbols(U16x8 states, const SplitNumbers& entries, U16x8& shrinks) noexcept {
  const U16x8 frequencies = entries.lower & 0xff;
  const U16x8 shrunk = states >> 8;
  // signed compares take one instruction
  shrinks = bits_as<U16x8>(bits_as<S16x8>(frequencies) <= bits_as<S16x8>(shrunk));
  states ^= (states ^ shrunk) & shrinks;
  const U16x8 near = multiply_upper(states, entries.upper);
  const U16x8 over = states - near * frequencies;  // below twice the frequency: see rans_reciprocal()
  const U16x8 quotients = near - bits_as<U16x8>(bits_as<S16x8>(over) >= bits_as<S16x8>(frequencies));
  // 256 * quotient + remainder + start
  return states + quotients * (256 - frequencies) + (entries.lower >> 8);
}

// Writes the lower bytes of the lanes that `shrinks` marks, in order, so that they end at `out`; returns where they
// begin. Up to eight bytes below that are overwritten.
[[gnu::always_inline]] inline std::uint8_t* write_below(std::uint8_t* out, U16x8 even, U16x8 odd, U16x8 even_shrinks,
                                                        U16x8 odd_shrinks) noexcept {
  alignas(16) std::uint8_t bytes[kRow];
  alignas(16) std::uint8_t places[kRow];
  store16(bytes, join_lower_bytes(even, odd));
  // The number of bytes that the lanes of its half give above each lane.
  const auto gives = bits_as<U64x2>(join_lower_bytes(even_shrinks & 1, odd_shrinks & 1));
  U64x2 above = gives >> 8;
  above += above >> 8;
  above += above >> 16;
  above += above >> 32;
  store16(places, (kHalf - 1) - bits_as<U8x16>(above));
  keep_in_memory(bytes);
  keep_in_memory(places);
  const U64x2 given = above + gives;
  for (std::size_t half = 2; half-- > 0;) {
    std::uint8_t* const below = out - kHalf;
    for (std::size_t i = kHalf; i-- > 0;) below[places[half * kHalf + i]] = bytes[half * kHalf + i];
    out -= given[half] & 255;
  }
  return out;
}

template <std::size_t kBytes, bool kRotated>
void encode(RansEncoding& at, const RansEncodeTable& table, const std::uint8_t* in, std::size_t rounds,
            std::uint8_t* rest) noexcept {
  constexpr std::size_t kRound = kEncodeGroups * kEncodeLanes;
  if (table.single) {
    for (std::size_t i = 0; i < rounds * kRound; ++i) {
      take_apart<kBytes, kRotated>(in + i * kBytes, rest + i * (kBytes - 1));
    }
    return;
  }
  Entry entries[256];
  fill_entries(table, entries);
  const auto escape = static_cast<std::uint16_t>(entry_of(table, table.window));
  U16x8 states[kRows][2];  // of the even and of the odd lanes
  for (std::size_t row = 0; row < kRows; ++row) {
    const auto low = load16<U16x8>(at.low[row / kRowsOfGroup] + row % kRowsOfGroup * kRow);
    const auto high = load16<U16x8>(at.high[row / kRowsOfGroup] + row % kRowsOfGroup * kRow);
    states[row][0] = (low & 0xff) | high << 8;
    states[row][1] = low >> 8 | (high & 0xff00);
  }
  std::uint8_t* escapes = at.escapes;
  in += rounds * kRound * kBytes;
  rest += rounds * kRound * (kBytes - 1);
  for (; rounds > 0; --rounds) {
    for (std::size_t group = kEncodeGroups; group-- > 0;) {
      std::uint8_t* out = at.out[group];
      for (std::size_t row = (group + 1) * kRowsOfGroup; row-- > group * kRowsOfGroup;) {
        in -= kRow * kBytes;
        rest -= kRow * (kBytes - 1);
        prefetch_before(in, kRow * kBytes);
        alignas(16) std::uint8_t symbols[kRow];
        take_row_apart<kBytes, kRotated>(in, rest, symbols);
        keep_in_memory(symbols);
        const SplitNumbers even = split_numbers([&](std::size_t i) { return entries[symbols[2 * i]]; });
        const SplitNumbers odd = split_numbers([&](std::size_t i) { return entries[symbols[2 * i + 1]]; });
        const auto escaped = bits_as<U64x2>((even.lower == escape) | (odd.lower == escape));
        if ((escaped[0] | escaped[1]) != 0) [[unlikely]] {
          for (std::size_t lane = kRow; lane-- > 0;) {
            if (static_cast<std::uint16_t>(entries[symbols[lane]]) == escape) *--escapes = symbols[lane];
          }
        }
        const U16x8 even_states = states[row][0];
        const U16x8 odd_states = states[row][1];
        U16x8 even_shrinks;
        U16x8 odd_shrinks;
        states[row][0] = put_symbols(even_states, even, even_shrinks);
        states[row][1] = put_symbols(odd_states, odd, odd_shrinks);
        out = write_below(out, even_states, odd_states, even_shrinks, odd_shrinks);
      }
      at.out[group] = out;
    }
  }
  at.escapes = escapes;
  for (std::size_t row = 0; row < kRows; ++row) {
    const std::size_t lane = row % kRowsOfGroup * kRow;
    store16(at.low[row / kRowsOfGroup] + lane, join_lower_bytes(states[row][0], states[row][1]));
    store16(at.high[row / kRowsOfGroup] + lane, join_upper_bytes(states[row][0], states[row][1]));
  }
}

}  // namespace

constinit const RansEncodeKernels RansEncodeKernels::kScalar = {
    {{entropy::encode<1, false>, entropy::encode<1, false>},
     {entropy::encode<2, false>, entropy::encode<2, true>},
     {entropy::encode<4, false>, entropy::encode<4, true>}}};

}  // namespace bitsnap::entropy
