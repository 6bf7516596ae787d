// Finds the cheapest window of symbols: for each width, the window that covers the most values.
#include "codec/factored_split/factored_tables_encode.hpp"

#include <limits>

#include "entropy/rans_table_encode.hpp"

namespace bitsnap::codec {
namespace {

constexpr std::size_t kListed = entropy::kClassSymbols - 1;  // all except the escape
constexpr unsigned kWidths = 5;                              // from an eighth of an octave to two octaves
constexpr unsigned kEscapeBits = 16;

// The number of counted values before each bin.
using BinSums = std::array<std::uint32_t, kLeftBins + 1>;

// The first bin of the fullest window; of several consecutive ones, the middle.
std::size_t fullest(const BinSums& sums, std::size_t size) noexcept {
  std::size_t best = 0;
  std::size_t last = 0;
  std::uint32_t most = 0;
  for (std::size_t first = 0; first + size <= kLeftBins; ++first) {
    const std::uint32_t inside = sums[first + size] - sums[first];
    if (inside > most) {
      most = inside;
      best = first;
      last = first;
    } else if (inside == most && last + 1 == first) {
      last = first;
    }
  }
  return (best + last) / 2;
}

}  // namespace

void LeftCounts::add(const LeftCounts& other) noexcept {
  for (std::size_t i = 0; i < kLeftBins; ++i) bins[i] += other.bins[i];
  total += other.total;
}

SymbolWindow choose_window(const LeftCounts& counts, unsigned bin_bits) noexcept {
  BinSums sums;
  sums[0] = 0;
  for (std::size_t i = 0; i < kLeftBins; ++i) sums[i + 1] = sums[i] + counts.bins[i];
  SymbolWindow best;
  best.cost = std::numeric_limits<std::uint64_t>::max();
  for (unsigned width = 0; width < kWidths; ++width) {
    SymbolWindow window{.first_bin = fullest(sums, kListed << width), .bins_shift = width};
    // Uncounted symbols are escaped, so the escape always has a slot.
    std::array<std::uint32_t, entropy::kClassSymbols> listed{};
    std::array<std::size_t, entropy::kClassSymbols> symbols{};
    std::size_t size = 0;
    std::uint32_t escaped = counts.total;
    for (std::size_t symbol = 0; symbol < kListed; ++symbol) {
      const std::size_t begin = window.first_bin + (symbol << width);
      const std::uint32_t count = sums[begin + (std::size_t{1} << width)] - sums[begin];
      if (count == 0) continue;
      listed[size] = count;
      symbols[size++] = symbol;
      escaped -= count;
    }
    listed[size] = escaped;
    symbols[size++] = entropy::kClassEscape;
    std::array<std::uint16_t, entropy::kClassSymbols> slots{};
    entropy::share_rans_slots(listed.data(), size, counts.total, slots.data());
    if (size == 1) {  // only escapes; a class needs at least two symbols with slots
      slots[0] = entropy::kRansScale - 1;
      window.frequencies[0] = 1;
    }
    window.cost = (std::uint64_t{counts.total} * (bin_bits + width) + std::uint64_t{escaped} * kEscapeBits)
                  << entropy::kCostBits;
    for (std::size_t i = 0; i < size; ++i) {
      window.cost += listed[i] * entropy::slots_cost(slots[i]);
      window.frequencies[symbols[i]] = static_cast<std::uint8_t>(slots[i]);
    }
    if (window.cost < best.cost) best = window;
  }
  return best;
}

}  // namespace bitsnap::codec
