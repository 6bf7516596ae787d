// The encoding kernel of the lane coder for the baseline of every machine, and the reference for the others.
#include "entropy/rans_encode_kernel.hpp"

namespace bitsnap::entropy {
namespace {

// What coding a symbol needs. x / frequency == x * reciprocal >> kReciprocalBits for all states x, because the error,
// less than x * frequency in units of the quotient's last place, stays below 2^kReciprocalBits.
struct Entry {
  std::uint32_t reciprocal;
  std::uint32_t to_limit;  // 2^16 less the states from which on a byte is given away: a state carries into bit 16 there
  std::uint32_t complement;  // 256 - frequency
  std::uint32_t start;       // and kEscaped, which is above the 16 bits of a state
};
constexpr unsigned kReciprocalBits = 24;
constexpr std::uint32_t kEscaped = 1U << 16;

void fill_entries(const RansEncodeTable& table, Entry* entries) noexcept {
  for (unsigned symbol = 0; symbol < 256; ++symbol) {
    const unsigned distance = (symbol - table.first) & 255;
    const unsigned in_window = distance < table.window ? distance : table.window;
    const unsigned index = symbol == table.outlier ? kOutlierIndex : in_window;
    const std::uint32_t frequency = table.frequencies[index];
    entries[symbol] = {((1U << kReciprocalBits) + frequency - 1) / frequency, (256 - frequency) << 8, 256 - frequency,
                       table.starts[index] | (index == table.window ? kEscaped : 0)};
  }
}

// Writes the rest of the element and returns its symbol.
template <std::size_t kBytes, bool kRotated>
inline std::uint8_t take_apart(const std::uint8_t* in, std::uint8_t* rest) noexcept {
  if constexpr (kBytes == 2) {
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

template <std::size_t kBytes, bool kRotated>
void encode(RansEncoding& at, const RansEncodeTable& table, const std::uint8_t* in, std::size_t steps,
            std::uint8_t* rest) noexcept {
  constexpr std::size_t kStep = kEncodeGroups * kEncodeLanes;
  if (table.single) {
    for (std::size_t i = 0; i < steps * kStep; ++i) {
      take_apart<kBytes, kRotated>(in + i * kBytes, rest + i * (kBytes - 1));
    }
    return;
  }
  Entry entries[256];
  fill_entries(table, entries);
  std::uint16_t states[kStep];
  for (std::size_t lane = 0; lane < kStep; ++lane) {
    states[lane] = static_cast<std::uint16_t>(at.high[lane / kEncodeLanes][lane % kEncodeLanes] << 8 |
                                              at.low[lane / kEncodeLanes][lane % kEncodeLanes]);
  }
  std::uint8_t* escapes = at.escapes;
  for (std::size_t step = steps; step-- > 0;) {
    for (std::size_t group = kEncodeGroups; group-- > 0;) {
      std::uint8_t* out = at.out[group];
      for (std::size_t i = kEncodeLanes; i-- > 0;) {
        const std::size_t lane = group * kEncodeLanes + i;
        const std::size_t element = step * kStep + lane;
        const std::uint8_t symbol = take_apart<kBytes, kRotated>(in + element * kBytes, rest + element * (kBytes - 1));
        const Entry& entry = entries[symbol];
        if (entry.start >= kEscaped) [[unlikely]]
          *--escapes = symbol;
        // A state that the symbol would carry beyond 16 bits gives a byte away. In arithmetic, for a branch would be
        // missed as often as not.
        const std::uint32_t state = states[lane];
        const std::uint32_t shrinks = (state + entry.to_limit) >> 16;  // 1 or 0
        out[-1] = static_cast<std::uint8_t>(state);
        out -= shrinks;
        const std::uint32_t shrunk = state >> (8 * shrinks);
        const auto quotient = static_cast<std::uint32_t>(std::uint64_t{shrunk} * entry.reciprocal >> kReciprocalBits);
        // 256 * quotient + remainder + start
        states[lane] = static_cast<std::uint16_t>(shrunk + quotient * entry.complement + entry.start);
      }
      at.out[group] = out;
    }
  }
  at.escapes = escapes;
  for (std::size_t lane = 0; lane < kStep; ++lane) {
    at.low[lane / kEncodeLanes][lane % kEncodeLanes] = static_cast<std::uint8_t>(states[lane]);
    at.high[lane / kEncodeLanes][lane % kEncodeLanes] = static_cast<std::uint8_t>(states[lane] >> 8);
  }
}

}  // namespace

void rans_encode_scalar(RansEncoding& at, const RansEncodeTable& table, std::size_t element_bytes, bool rotated,
                        const std::uint8_t* in, std::size_t steps, std::uint8_t* rest) noexcept {
  if (element_bytes == 2) {
    (rotated ? encode<2, true> : encode<2, false>)(at, table, in, steps, rest);
  } else {
    (rotated ? encode<4, true> : encode<4, false>)(at, table, in, steps, rest);
  }
}

}  // namespace bitsnap::entropy
