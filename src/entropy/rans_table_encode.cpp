// Chooses the symbols of a block that get slots, and the number of slots of each.
#include "entropy/rans_table_encode.hpp"

#include <algorithm>

namespace bitsnap::entropy {
namespace {

// Symbols of the encoder's window; of the 16 indexes of a kernel's table, 15 is the outlier's, and one is the escape's.
constexpr std::size_t kMaxWindow = 14;

struct Window {
  std::size_t first = 0;
  std::size_t size = 0;
};

// The window with the most elements, without uncounted symbols at its ends.
Window best_window(const Histogram& counts) noexcept {
  std::uint32_t inside = 0;
  std::uint32_t best = 0;
  std::size_t best_end = 0;
  for (std::size_t end = 1; end <= counts.size(); ++end) {
    inside += counts[end - 1];
    if (end > kMaxWindow) inside -= counts[end - 1 - kMaxWindow];
    if (inside > best) {
      best = inside;
      best_end = end;
    }
  }
  std::size_t first = best_end < kMaxWindow ? 0 : best_end - kMaxWindow;
  while (counts[first] == 0) ++first;
  while (counts[best_end - 1] == 0) --best_end;
  return {first, best_end - first};
}

}  // namespace

void share_rans_slots(const std::uint32_t* counts, std::size_t size, std::uint32_t total,
                      std::uint16_t* slots) noexcept {
  unsigned sum = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const std::uint64_t share = std::uint64_t{counts[i]} * kRansScale / total;
    slots[i] = static_cast<std::uint16_t>(std::max<std::uint64_t>(share, 1));
    sum += slots[i];
  }
  for (; sum < kRansScale; ++sum) {
    std::size_t best = 0;
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint64_t saved =
          std::uint64_t{counts[i]} * (kRansLogarithms[slots[i] + 1U] - kRansLogarithms[slots[i]]);
      if (saved > most) {
        most = saved;
        best = i;
      }
    }
    ++slots[best];
  }
  for (; sum > kRansScale; --sum) {
    std::size_t best = size;
    std::uint64_t least = 0;
    for (std::size_t i = 0; i < size; ++i) {
      if (slots[i] == 1) continue;
      const std::uint64_t lost =
          std::uint64_t{counts[i]} * (kRansLogarithms[slots[i]] - kRansLogarithms[slots[i] - 1U]);
      if (best == size || lost < least) {
        least = lost;
        best = i;
      }
    }
    --slots[best];
  }
}

std::uint64_t entropy_of(const Histogram& counts) noexcept {
  std::uint32_t total = 0;
  for (const std::uint32_t count : counts) total += count;
  std::uint64_t entropy = 0;
  for (const std::uint32_t count : counts) {
    if (count > 0) entropy += count * (rans_logarithm(total) - rans_logarithm(count));
  }
  return entropy;
}

RansChoice choose_rans_table(const Histogram& counts) noexcept {
  RansChoice choice;
  RansTable& table = choice.table;
  const Window window = best_window(counts);
  std::array<std::uint32_t, kRansMaxSymbols + 1> chosen{};
  std::uint32_t total = 0;
  std::uint32_t outside = 0;
  std::size_t outlier = 0;
  std::uint32_t most = 0;
  for (std::size_t symbol = 0; symbol < counts.size(); ++symbol) {
    const std::uint32_t count = counts[symbol];
    total += count;
    if (symbol - window.first < window.size) {
      chosen[table.count] = count;
      table.symbols[table.count++] = static_cast<std::uint8_t>(symbol);
      continue;
    }
    outside += count;
    if (count > most) {
      most = count;
      outlier = symbol;
    }
  }
  if (most > 0) {
    chosen[table.count] = most;
    table.symbols[table.count++] = static_cast<std::uint8_t>(outlier);
    outside -= most;
  }
  chosen[table.count] = outside;

  std::array<std::uint16_t, kRansMaxSymbols + 1> slots;
  share_rans_slots(chosen.data(), table.count + 1, total, slots.data());
  std::copy_n(slots.begin(), table.count, table.frequencies.begin());
  table.escape = slots[table.count];

  constexpr std::uint64_t kSymbolCost = std::uint64_t{8} << kCostBits;  // eight bits: a slot, or an escaped byte
  for (std::size_t i = 0; i <= table.count; ++i) choice.cost += chosen[i] * (kSymbolCost - kRansLogarithms[slots[i]]);
  choice.cost += outside * kSymbolCost;
  return choice;
}

RansTable single_rans_table(std::uint8_t symbol) noexcept {
  RansTable table;
  table.count = 1;
  table.symbols[0] = symbol;
  table.frequencies[0] = kRansScale;
  return table;
}

std::uint8_t commonest_symbol(const RansTable& table) noexcept {
  const auto most = std::max_element(table.frequencies.begin(), table.frequencies.begin() + table.count);
  return table.symbols[static_cast<std::size_t>(most - table.frequencies.begin())];
}

std::size_t write_rans_table(const RansTable& table, std::byte* out) noexcept {
  out[0] = static_cast<std::byte>(table.count);
  for (std::size_t i = 0; i < table.count; ++i) {
    out[1 + i] = static_cast<std::byte>(table.symbols[i]);
    out[1 + table.count + i] = static_cast<std::byte>(table.frequencies[i]);  // as a byte; kRansScale becomes 0
  }
  return 1 + 2 * table.count;
}

void fill_encode_table(const RansTable& from, RansEncodeTable& table) noexcept {
  table.single = from.is_single();
  table.first = from.symbols[0];
  if (table.single) return;
  std::size_t window = 1;
  while (window < from.count && from.symbols[window] == from.symbols[0] + window) ++window;
  window = std::min(window, kMaxWindow);  // so the outlier may be the next symbol
  const bool has_outlier = window < from.count;
  table.window = static_cast<std::uint8_t>(window);
  table.outlier = from.symbols[has_outlier ? window : 0];
  unsigned start = 0;
  const auto put = [&](std::size_t index, unsigned frequency) {
    table.starts[index] = static_cast<std::uint8_t>(start);
    table.frequencies[index] = static_cast<std::uint8_t>(frequency);
    table.reciprocals_low[index] = static_cast<std::uint8_t>(rans_reciprocal(frequency));
    table.reciprocals_high[index] = static_cast<std::uint8_t>(rans_reciprocal(frequency) >> 8);
  };
  for (std::size_t i = 0; i < kOutlierIndex; ++i) put(i, 1);  // never looked up
  for (std::size_t i = 0; i < from.count; ++i) {
    put(i < window ? i : std::size_t{kOutlierIndex}, from.frequencies[i]);
    start += from.frequencies[i];
  }
  put(window, from.escape);
  if (!has_outlier) {
    start = 0;
    put(kOutlierIndex, from.frequencies[0]);
  }
}

}  // namespace bitsnap::entropy
