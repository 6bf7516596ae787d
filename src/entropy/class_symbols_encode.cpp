// Counts the symbols of buckets and finds the cheapest shift and coarseness. The first buckets of all symbols are
// computed at compile time.
#include "entropy/class_symbols_encode.hpp"

#include <iterator>

#include "entropy/octave_symbols.hpp"

namespace bitsnap::entropy {
namespace {

// The escape rates that are tried: a shift is wide enough if at most one value in N is escaped. Usually the first rate
// is best. If values are of two kinds, near and far (changed signs), it is cheaper to escape the far values than to
// shift the near ones out of sight.
constexpr std::uint32_t kPerEscape[] = {64, 8, 3};

// Shifts that differ by less cost about the same.
constexpr unsigned kShiftsApart = 3;

// The rates for octaves, which reach further, so fewer values are escaped.
constexpr std::uint32_t kPerOctaveEscape[] = {1024, 128, 16};

// By coarseness and shift: the first bucket of each symbol, then the end of the last symbol.
using SymbolBuckets = std::array<std::uint8_t, kClassSymbols + 1>;
using AllSymbolBuckets = std::array<std::array<SymbolBuckets, kMostShift + 1>, kMostCoarseness + 1>;

consteval AllSymbolBuckets make_symbol_buckets() noexcept {
  AllSymbolBuckets all{};
  for (std::size_t coarseness = 0; coarseness <= kMostCoarseness; ++coarseness) {
    for (std::size_t shift = 0; shift <= kMostShift; ++shift) {
      SymbolBuckets& buckets = all[coarseness][shift];
      for (std::size_t symbol = 0; symbol < kClassEscape; ++symbol) {
        const std::size_t index = 16 * coarseness + symbol;
        const std::uint64_t first = std::uint64_t{kOctaveSymbols.heads[index]}
                                    << (kOctaveSymbols.low_bits[index] + shift);
        const std::uint64_t end = first + (std::uint64_t{1} << (kOctaveSymbols.low_bits[index] + shift));
        constexpr std::uint64_t kValues = std::uint64_t{1} << 16;
        buckets[symbol] = static_cast<std::uint8_t>(first < kValues ? class_bucket_of(static_cast<std::uint32_t>(first))
                                                                    : kClassBuckets);
        buckets[symbol + 1] =
            static_cast<std::uint8_t>(end < kValues ? class_bucket_of(static_cast<std::uint32_t>(end)) : kClassBuckets);
      }
      buckets[kClassSymbols] = kClassBuckets;
    }
  }
  return all;
}

constexpr AllSymbolBuckets kSymbolBuckets = make_symbol_buckets();

// The least shift with which at most one value in `per_escape` is escaped.
unsigned shift_with(const BucketSums& sums, unsigned coarseness, std::uint32_t per_escape,
                    unsigned max_shift) noexcept {
  const std::uint32_t total = sums[kClassBuckets];
  unsigned shift = max_shift;
  for (; shift > 0; --shift) {
    const std::uint32_t escaped = total - sums[kSymbolBuckets[coarseness][shift - 1][kClassEscape]];
    if (escaped * per_escape > total) break;
  }
  return shift;
}

PlannedSymbols costed(PlannedSymbols planned) noexcept {
  planned.own_cost = entropy_cost(planned.counts) + (planned.raw_bits() << kCostBits);
  return planned;
}

}  // namespace

std::uint64_t entropy_cost(const SymbolCounts& counts) noexcept {
  std::uint32_t total = 0;
  for (const std::uint32_t count : counts) total += count;
  if (total == 0) return 0;
  std::uint64_t cost = 0;
  const std::uint64_t all = rans_logarithm(total);
  for (const std::uint32_t count : counts) {
    if (count > 0) cost += count * (all - std::min(all, rans_logarithm(count)));
  }
  return cost;
}

std::uint64_t PlannedSymbols::raw_bits() const noexcept {
  std::uint32_t total = 0;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < kClassSymbols; ++i) {
    total += counts[i];
    bits += counts[i] * kOctaveSymbols.low_bits[16 * std::size_t{coarseness} + i];
  }
  return std::uint64_t{bits} + std::uint64_t{total} * shift + std::uint64_t{counts[kClassEscape]} * kEscapedBits;
}

PlannedSymbols plan_symbols(const BucketSums& sums, unsigned shift, unsigned coarseness) noexcept {
  PlannedSymbols planned{.shift = shift, .coarseness = coarseness};
  const SymbolBuckets& buckets = kSymbolBuckets[coarseness][shift];
  for (std::size_t i = 0; i < kClassSymbols; ++i) {
    planned.counts[i] = std::uint32_t{sums[buckets[i + 1]]} - sums[buckets[i]];
  }
  return planned;
}

PlannedSymbols choose_even_symbols(const BucketSums& sums, unsigned max_shift) noexcept {
  PlannedSymbols best = costed(plan_symbols(sums, shift_with(sums, 0, kPerEscape[0], max_shift), 0));
  for (std::size_t i = 1; i < std::size(kPerEscape); ++i) {
    const unsigned shift = shift_with(sums, 0, kPerEscape[i], max_shift);
    if (shift + kShiftsApart > best.shift) continue;
    const PlannedSymbols other = costed(plan_symbols(sums, shift, 0));
    if (other.own_cost < best.own_cost) best = other;
  }
  return best;
}

PlannedSymbols choose_symbols(const BucketSums& sums, const PlannedSymbols& even) noexcept {
  PlannedSymbols best = even;
  for (unsigned coarseness = 1; coarseness <= kMostCoarseness; ++coarseness) {
    unsigned last = kMostShift + 1;
    for (const std::uint32_t per_escape : kPerOctaveEscape) {
      const unsigned shift = shift_with(sums, coarseness, per_escape, kMostShift);
      if (shift == last) continue;
      last = shift;
      const PlannedSymbols other = costed(plan_symbols(sums, shift, coarseness));
      if (other.own_cost < best.own_cost) best = other;
    }
  }
  return best;
}

}  // namespace bitsnap::entropy
