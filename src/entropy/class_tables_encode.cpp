// Chooses plans and tables from a sample: first a plan for each context alone, then classes of contexts, then better
// plans for the tables of the classes.
#include "entropy/class_tables_encode.hpp"

#include <algorithm>
#include <limits>

#include "entropy/class_symbols_encode.hpp"
#include "entropy/octave_symbols.hpp"

namespace bitsnap::entropy {
namespace {

// The largest shift without low bytes. Avoiding low bytes may cost 1 / kPerNarrow of the size, because it makes the
// kernels a fifth faster (docs/decisions/0008-ordinal-deltas.md).
constexpr unsigned kNarrowShift = 7;
constexpr std::uint64_t kPerNarrow = 512;

// A slot for a symbol that is rarer than one value in kPerRare costs the other symbols more than escaping it does.
constexpr std::uint32_t kPerRare = 1024;

// Plans are refined among shifts that differ by at most this much.
constexpr unsigned kShiftsAround = 2;

// The contexts that occur, in order, with the counts up to each.
struct Runs {
  std::array<std::uint8_t, kClassContexts> contexts;
  std::array<SymbolCounts, kClassContexts + 1> sums;  // before each
  std::size_t size = 0;

  [[nodiscard]] SymbolCounts between(std::size_t begin, std::size_t end) const noexcept {
    SymbolCounts counts;
    for (std::size_t i = 0; i < kClassSymbols; ++i) counts[i] = sums[end][i] - sums[begin][i];
    return counts;
  }
};

// The first context of each class, and the number of classes.
struct Parting {
  std::array<std::size_t, kMaxClasses + 1> begins;
  std::size_t classes = 0;
};

Parting part(const Runs& runs, std::uint64_t cost_of_class) noexcept {
  constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  constexpr std::size_t kEnds = kClassContexts + 1;
  std::array<std::array<std::uint64_t, kEnds>, kMaxClasses + 1> least;
  std::array<std::array<std::size_t, kEnds>, kMaxClasses + 1> begin;
  for (auto& row : least) row.fill(kNone);
  least[0][0] = 0;
  for (std::size_t from = 0; from < runs.size; ++from) {
    for (std::size_t to = from + 1; to <= runs.size; ++to) {
      const std::uint64_t cost = entropy_cost(runs.between(from, to)) + cost_of_class;
      for (std::size_t classes = 1; classes <= kMaxClasses; ++classes) {
        if (least[classes - 1][from] == kNone || least[classes - 1][from] + cost >= least[classes][to]) continue;
        least[classes][to] = least[classes - 1][from] + cost;
        begin[classes][to] = from;
      }
    }
  }
  Parting parting;
  parting.classes = 1;
  for (std::size_t classes = 2; classes <= kMaxClasses; ++classes) {
    if (least[classes][runs.size] < least[parting.classes][runs.size]) parting.classes = classes;
  }
  parting.begins[parting.classes] = runs.size;
  for (std::size_t i = parting.classes; i > 0; --i) parting.begins[i - 1] = begin[i][parting.begins[i]];
  return parting;
}

// Chooses the frequencies of one class and returns the cost of its symbols. Very rare symbols, and those above the
// largest counted symbol, have no slots and are escaped.
std::uint64_t choose_frequencies(const SymbolCounts& counts,
                                 std::array<std::uint8_t, kClassSymbols>& frequencies) noexcept {
  std::uint32_t total = 0;
  for (const std::uint32_t count : counts) total += count;
  const auto commonest =
      static_cast<std::size_t>(std::max_element(counts.begin(), counts.begin() + kClassEscape) - counts.begin());
  std::size_t end = kClassEscape;
  while (end > 1 && counts[end - 1] == 0) --end;
  std::array<std::uint8_t, kClassSymbols> listed;
  SymbolCounts own;
  std::size_t size = 0;
  std::uint32_t escaped = counts[kClassEscape];
  std::uint64_t cost = 0;
  std::uint64_t once = 0;
  for (std::size_t i = 0; i < kClassEscape; ++i) {
    once += counts[i] == 1 ? 1U : 0U;
    const bool is_rare = (2 * counts[i] + 1) * kPerRare <= total;
    if (i != commonest && (i >= end || is_rare)) {
      escaped += counts[i];
      cost += (std::uint64_t{counts[i]} * kEscapedBits) << kCostBits;
      continue;
    }
    listed[size] = static_cast<std::uint8_t>(i);
    own[size++] = counts[i];
  }
  own[size] = escaped;
  std::array<std::uint16_t, kClassSymbols> slots;
  share_rans_slots(own.data(), size + 1, total, slots.data());
  frequencies.fill(0);
  for (std::size_t i = 0; i <= size; ++i) {
    cost += own[i] * slots_cost(slots[i]);
    frequencies[i < size ? listed[i] : kClassEscape] = static_cast<std::uint8_t>(slots[i]);
  }
  // By Good and Turing, as many values are expected to be missing from the sample as occur once in it; they are
  // escaped.
  if (size < kClassEscape) cost += once * ((std::uint64_t{8} + kEscapedBits) << kCostBits);
  return cost;
}

using Counted = std::array<BucketSums, kClassContexts>;

// The plan of each context.
using Contexts = std::array<PlannedSymbols, kClassContexts>;

// The sample, in buckets.
struct Counting {
  Counted values;
  Counted others;                            // of contexts from least_other on
  std::size_t least_other = kClassContexts;  // the least context that may use the other measure

  [[nodiscard]] std::uint32_t total(std::size_t context) const noexcept { return values[context][kClassBuckets]; }
};

// Counts the values whose context is `least` or larger. Neighbours use different tables: equal neighbours would wait
// for each other's counter.
Counted count(std::span<const std::uint8_t> contexts, std::span<const std::uint16_t> values,
              std::uint32_t least) noexcept {
  constexpr std::size_t kPart = 256;
  constexpr std::uint32_t kAll = kClassContexts * kClassBuckets;
  std::array<std::array<std::uint16_t, kAll + 1>, 2> counts{};  // the last row is for all other contexts
  std::array<std::uint16_t, kPart> places;
  for (std::size_t first = 0; first < values.size(); first += kPart) {
    const std::size_t size = std::min(kPart, values.size() - first);
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint32_t context = contexts[first + i];
      const std::uint32_t place =
          context * static_cast<std::uint32_t>(kClassBuckets) + class_bucket_of(values[first + i]);
      const std::uint32_t all = context < least ? ~std::uint32_t{0} : 0;
      places[i] = static_cast<std::uint16_t>(std::min((place | all) & 0xffff, kAll));
    }
    for (std::size_t i = 0; i + 1 < size; i += 2) {
      ++counts[0][places[i]];
      ++counts[1][places[i + 1]];
    }
    if (size % 2 != 0) ++counts[0][places[size - 1]];
  }
  Counted counted;
  for (std::size_t context = 0; context < kClassContexts; ++context) {
    std::uint16_t sum = 0;
    for (std::size_t i = context * kClassBuckets, bucket = 0; bucket < kClassBuckets; ++bucket, ++i) {
      counted[context][bucket] = sum;
      sum = static_cast<std::uint16_t>(sum + counts[0][i] + counts[1][i]);
    }
    counted[context][kClassBuckets] = sum;
  }
  return counted;
}

Contexts plan_evenly(const Counted& counted) noexcept {
  Contexts contexts{};
  for (std::size_t i = 0; i < kClassContexts; ++i) {
    if (counted[i][kClassBuckets] > 0) contexts[i] = choose_even_symbols(counted[i], kMostShift);
  }
  return contexts;
}

Contexts plan_octaves(const Counted& counted, const Contexts& even) noexcept {
  Contexts contexts{};
  for (std::size_t i = 0; i < kClassContexts; ++i) {
    if (counted[i][kClassBuckets] > 0) contexts[i] = choose_symbols(counted[i], even[i]);
  }
  return contexts;
}

// The least context whose shift, and those of all following contexts, is large enough for the other measure.
std::size_t least_other_of(const Counted& counted, const Contexts& contexts, unsigned least_shift) noexcept {
  std::size_t least = kClassContexts;
  for (std::size_t context = kClassContexts; context-- > 0;) {
    if (counted[context][kClassBuckets] == 0) continue;
    if (contexts[context].shift < least_shift) break;
    least = context;
  }
  return least;
}

// Uses the other measure from the context on from which it costs less; returns that context.
std::size_t choose_others(const Counting& counting, const Contexts& others, Contexts& contexts) noexcept {
  std::size_t first = kClassContexts;
  std::int64_t saved = 0;
  std::int64_t most_saved = 0;
  for (std::size_t context = kClassContexts; context-- > counting.least_other;) {
    if (counting.total(context) == 0) continue;
    saved +=
        static_cast<std::int64_t>(contexts[context].own_cost) - static_cast<std::int64_t>(others[context].own_cost);
    if (saved > most_saved) {
      most_saved = saved;
      first = context;
    }
  }
  const auto from = static_cast<std::ptrdiff_t>(first);
  std::copy(others.begin() + from, others.end(), contexts.begin() + from);
  return first;
}

// Avoids low bytes if that costs next to nothing; returns whether it does.
bool narrow_shifts(const Counted& counted, Contexts& contexts) noexcept {
  Contexts narrow = contexts;
  std::uint64_t cost = 0;
  std::uint64_t more = 0;
  for (std::size_t context = 0; context < kClassContexts; ++context) {
    if (counted[context][kClassBuckets] == 0) continue;
    const std::uint64_t own = contexts[context].own_cost;
    cost += own;
    if (contexts[context].shift <= kNarrowShift) continue;
    narrow[context] = choose_even_symbols(counted[context], kNarrowShift);
    const std::uint64_t other = narrow[context].own_cost;
    more += other > own ? other - own : 0;
  }
  if (more > cost / kPerNarrow) return false;
  contexts = narrow;
  return true;
}

// The cost of each symbol of a class, with its low bits beyond the shift. Symbols without slots are escaped.
using SymbolCosts = std::array<std::uint32_t, kClassSymbols>;

SymbolCosts costs_of(const std::array<std::uint8_t, kClassSymbols>& frequencies, unsigned coarseness) noexcept {
  SymbolCosts costs;
  const auto own = [&](std::size_t symbol) {
    return static_cast<std::uint32_t>(slots_cost(std::max<std::uint32_t>(frequencies[symbol], 1)));
  };
  costs[kClassEscape] = own(kClassEscape) + (kEscapedBits << kCostBits);
  for (std::size_t i = 0; i < kClassEscape; ++i) {
    costs[i] = frequencies[i] == 0
                   ? costs[kClassEscape]
                   : own(i) + (std::uint32_t{kOctaveSymbols.low_bits[16 * std::size_t{coarseness} + i]} << kCostBits);
  }
  return costs;
}

std::uint64_t cost_of(const PlannedSymbols& planned, const SymbolCosts& costs, std::uint32_t total) noexcept {
  std::uint64_t cost = (std::uint64_t{total} * planned.shift) << kCostBits;
  for (std::size_t i = 0; i < kClassSymbols; ++i) cost += std::uint64_t{planned.counts[i]} * costs[i];
  return cost;
}

// The best plan of a context whose class is chosen.
PlannedSymbols refined(const BucketSums& sums, const PlannedSymbols& from,
                       const std::array<SymbolCosts, kMostCoarseness + 1>& costs, unsigned most_shift,
                       unsigned most_coarseness) noexcept {
  const std::uint32_t total = sums[kClassBuckets];
  PlannedSymbols best = from;
  std::uint64_t least = cost_of(best, costs[best.coarseness], total);
  const unsigned first = from.shift - std::min(from.shift, kShiftsAround);
  const unsigned last = std::min(from.shift + kShiftsAround, most_shift);
  for (unsigned coarseness = 0; coarseness <= most_coarseness; ++coarseness) {
    for (unsigned shift = first; shift <= last; ++shift) {
      const PlannedSymbols other = plan_symbols(sums, shift, coarseness);
      const std::uint64_t cost = cost_of(other, costs[coarseness], total);
      if (cost >= least) continue;
      least = cost;
      best = other;
    }
  }
  return best;
}

// Chooses classes and their tables for contexts with plans, then refines the plans for these tables.
ClassChoice choose_classes(const Counting& counting, std::size_t first_other, Contexts& contexts, unsigned most_shift,
                           unsigned most_coarseness, std::uint64_t cost_of_class) noexcept {
  ClassChoice choice;
  choice.first_other = first_other;
  Runs runs;
  runs.sums[0] = {};
  for (std::size_t context = 0; context < kClassContexts; ++context) {
    if (counting.total(context) == 0) continue;
    runs.contexts[runs.size] = static_cast<std::uint8_t>(context);
    runs.sums[runs.size + 1] = runs.sums[runs.size];
    for (std::size_t i = 0; i < kClassSymbols; ++i) runs.sums[runs.size + 1][i] += contexts[context].counts[i];
    ++runs.size;
  }
  const Parting parting = part(runs, cost_of_class);
  choice.tables.classes = parting.classes;
  for (std::size_t i = 0; i < parting.classes; ++i) {
    auto& frequencies = choice.tables.frequencies[i];
    static_cast<void>(choose_frequencies(runs.between(parting.begins[i], parting.begins[i + 1]), frequencies));
    std::array<SymbolCosts, kMostCoarseness + 1> costs;
    for (unsigned coarseness = 0; coarseness <= most_coarseness; ++coarseness) {
      costs[coarseness] = costs_of(frequencies, coarseness);
    }
    SymbolCounts counts{};
    for (std::size_t run = parting.begins[i]; run < parting.begins[i + 1]; ++run) {
      const std::size_t context = runs.contexts[run];
      const BucketSums& sums = (context < first_other ? counting.values : counting.others)[context];
      contexts[context] = refined(sums, contexts[context], costs, most_shift, most_coarseness);
      for (std::size_t k = 0; k < kClassSymbols; ++k) counts[k] += contexts[context].counts[k];
      choice.cost += contexts[context].raw_bits() << kCostBits;
    }
    choice.cost += choose_frequencies(counts, frequencies);
  }
  // A context that the sample lacks uses the class of the context before it.
  std::size_t run = 0;
  for (std::size_t context = 0; context < kClassContexts; ++context) {
    while (run + 1 < runs.size && runs.contexts[run + 1] <= context) ++run;
    std::size_t own_class = 0;
    while (own_class + 1 < parting.classes && parting.begins[own_class + 1] <= run) ++own_class;
    const PlannedSymbols& planned = contexts[runs.contexts[run]];
    choice.tables.plans[context] = static_cast<std::uint8_t>(planned.coarseness * kPlanCoarsenessUnit +
                                                             own_class * kPlanClassUnit + planned.shift);
  }
  return choice;
}

}  // namespace

ClassChoice choose_class_tables(const ClassSample& sample) noexcept {
  Counting counting;
  counting.values = count(sample.contexts, sample.values, 0);
  Contexts even = plan_evenly(counting.values);
  Contexts octaves = plan_octaves(counting.values, even);
  std::size_t first_other = kClassContexts;
  std::size_t first_octave_other = kClassContexts;
  // Contexts with the other measure have large shifts.
  const bool narrow = narrow_shifts(counting.values, even);
  if (!narrow && !sample.others.empty()) {
    counting.least_other = least_other_of(counting.values, even, sample.least_other_shift);
    if (counting.least_other < kClassContexts) {
      counting.others = count(sample.contexts, sample.others, static_cast<std::uint32_t>(counting.least_other));
      const Contexts other_even = plan_evenly(counting.others);
      first_other = choose_others(counting, other_even, even);
      first_octave_other = choose_others(counting, plan_octaves(counting.others, other_even), octaves);
    }
  }
  const std::uint64_t table_bits = (std::uint64_t{8 * kClassSymbols} << kCostBits) * sample.values.size();
  const std::uint64_t cost_of_class = table_bits / std::max(sample.elements, std::size_t{1});
  std::uint64_t even_cost = 0;
  std::uint64_t octave_cost = 0;
  for (std::size_t i = 0; i < kClassContexts; ++i) {
    if (counting.total(i) == 0) continue;
    even_cost += even[i].own_cost;
    octave_cost += octaves[i].own_cost;
  }
  const ClassChoice best =
      choose_classes(counting, first_other, even, narrow ? kNarrowShift : kMostShift, 0, cost_of_class);
  if (octave_cost + octave_cost / sample.per_octave_gain >= even_cost) return best;
  const ClassChoice other =
      choose_classes(counting, first_octave_other, octaves, kMostShift, kMostCoarseness, cost_of_class);
  return other.cost + other.cost / sample.per_octave_gain < best.cost ? other : best;
}

}  // namespace bitsnap::entropy
