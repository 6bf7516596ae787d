// From a sample to plans and tables: the values are counted by context, in buckets of which every shift can tell the
// symbols, so that the sample is looked at once.
#include "entropy/class_tables_encode.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>

namespace bitsnap::entropy {
namespace {

// Bucket 0 is the value 0; the others go by the place of a value's leading bit and the three bits behind that.
constexpr unsigned kSteps = 8;
constexpr std::size_t kBuckets = 1 + 16 * kSteps;

// A shift is wide enough if no more than one value in so many is escaped: as a rule the first. Where values are of two
// kinds, near and far (signs that flip), it costs less to escape the far ones than to shift the near ones out of sight.
constexpr std::uint32_t kPerEscape[] = {64, 8, 3};

// Shifts that differ by less than this cost about the same.
constexpr unsigned kShiftsApart = 3;

constexpr unsigned kEscapeBits = 16;

constexpr unsigned kMaxShift = 13;  // the first with which every value is a symbol

// The largest shift without low bytes. Kernels are faster without any, which is worth one part in so many of the size.
constexpr unsigned kNarrowShift = 7;
constexpr std::uint64_t kPerNarrow = 512;

using Buckets = std::array<std::uint16_t, kBuckets>;
using Counts = std::array<std::uint32_t, kClassSymbols>;

// As a float, which says both without a branch and to many values at a time.
inline std::uint32_t bucket_of(std::uint32_t value) noexcept {
  constexpr std::int32_t kBeforeOne = (127 << 3) - 1;
  const std::int32_t place = std::bit_cast<std::int32_t>(static_cast<float>(static_cast<std::int32_t>(value))) >> 20;
  return static_cast<std::uint32_t>(std::max(place, kBeforeOne) - kBeforeOne);
}

// The least shift with which no more than one value in `per_escape` is escaped.
unsigned shift_with(const Buckets& buckets, std::uint32_t total, std::uint32_t per_escape,
                    unsigned max_shift) noexcept {
  unsigned shift = max_shift;
  std::uint32_t escaped = 0;
  std::size_t end = kBuckets;
  while (shift > 0) {
    // Those that would be escaped with one less: 15 << (shift - 1) and more.
    const std::size_t first = bucket_of(15U << (shift - 1));
    for (; end > first; --end) escaped += buckets[end - 1];
    if (escaped * per_escape > total) break;
    --shift;
  }
  return shift;
}

Counts symbols_of(const Buckets& buckets, unsigned shift) noexcept {
  Counts counts{};
  std::size_t bucket = 0;
  for (std::uint32_t symbol = 0; symbol < kClassEscape; ++symbol) {
    const std::size_t end =
        std::min<std::size_t>(bucket_of((symbol + 1) << shift), kBuckets);  // the least value of its bucket
    for (; bucket < end; ++bucket) counts[symbol] += buckets[bucket];
  }
  for (; bucket < kBuckets; ++bucket) counts[kClassEscape] += buckets[bucket];
  return counts;
}

// What coding these counts with a table of their own costs.
std::uint64_t entropy_cost(const Counts& counts) noexcept {
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

struct Shifted {
  unsigned shift = 0;
  Counts counts{};

  // Low bits and escapes, without the symbols.
  [[nodiscard]] std::uint64_t raw_bits(std::uint32_t total) const noexcept {
    return std::uint64_t{total} * shift + std::uint64_t{counts[kClassEscape]} * kEscapeBits;
  }
  // With a table of its own.
  [[nodiscard]] std::uint64_t cost(std::uint32_t total) const noexcept {
    return entropy_cost(counts) + (raw_bits(total) << kCostBits);
  }
};

Shifted choose_shift(const Buckets& buckets, std::uint32_t total, unsigned max_shift) noexcept {
  Shifted best{.shift = shift_with(buckets, total, kPerEscape[0], max_shift)};
  best.counts = symbols_of(buckets, best.shift);
  for (std::size_t i = 1; i < std::size(kPerEscape); ++i) {
    Shifted other{.shift = shift_with(buckets, total, kPerEscape[i], max_shift)};
    if (other.shift + kShiftsApart > best.shift) continue;
    other.counts = symbols_of(buckets, other.shift);
    const auto cost = [&](const Shifted& one) { return entropy_cost(one.counts) + (one.raw_bits(total) << kCostBits); };
    if (cost(other) < cost(best)) best = other;
  }
  return best;
}

// The contexts that occur, in order, with what was counted up to each.
struct Runs {
  std::array<std::uint8_t, kClassContexts> contexts;
  std::array<Counts, kClassContexts + 1> sums;  // before each
  std::size_t size = 0;

  [[nodiscard]] Counts between(std::size_t begin, std::size_t end) const noexcept {
    Counts counts;
    for (std::size_t i = 0; i < kClassSymbols; ++i) counts[i] = sums[end][i] - sums[begin][i];
    return counts;
  }
};

// Where classes begin, first 0, and how many there are.
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

// The frequencies of one class; returns what its symbols cost. Symbols above the largest that was counted are escaped.
std::uint64_t choose_frequencies(const Counts& counts, std::array<std::uint8_t, kClassSymbols>& frequencies) noexcept {
  std::size_t symbols = kClassEscape;
  while (symbols > 1 && counts[symbols - 1] == 0) --symbols;
  Counts listed{};
  std::copy_n(counts.begin(), symbols, listed.begin());
  listed[symbols] = counts[kClassEscape];
  std::uint32_t total = 0;
  for (const std::uint32_t count : listed) total += count;
  std::array<std::uint16_t, kClassSymbols> slots;
  share_rans_slots(listed.data(), symbols + 1, total, slots.data());
  std::uint64_t cost = 0;
  std::uint64_t once = 0;
  for (std::size_t i = 0; i <= symbols; ++i) {
    cost += listed[i] * slots_cost(slots[i]);
    once += listed[i] == 1 ? 1U : 0U;
  }
  // As many as were met once may be expected that were not met at all (Good and Turing); those are escaped.
  if (symbols < kClassEscape) cost += once * ((std::uint64_t{8} + kEscapeBits) << kCostBits);
  frequencies.fill(0);
  for (std::size_t i = 0; i < symbols; ++i) frequencies[i] = static_cast<std::uint8_t>(slots[i]);
  frequencies[kClassEscape] = static_cast<std::uint8_t>(slots[symbols]);
  return cost;
}

// How many values of each context there are, and how each is coded.
struct Contexts {
  std::array<std::uint32_t, kClassContexts> totals{};
  std::array<Shifted, kClassContexts> shifted;
};

using Counted = std::array<Buckets, kClassContexts>;

// Counts the values whose context is `least` or beyond. Neighbours are counted apart, because the same count is often
// that of both, and would be waited for.
Counted count(std::span<const std::uint8_t> contexts, std::span<const std::uint16_t> values,
              std::uint32_t least) noexcept {
  constexpr std::size_t kPart = 256;
  constexpr std::uint32_t kAll = kClassContexts * kBuckets;
  std::array<std::array<std::uint16_t, kAll + 1>, 2> counts{};  // the last is that of all others
  std::array<std::uint16_t, kPart> places;
  for (std::size_t first = 0; first < values.size(); first += kPart) {
    const std::size_t size = std::min(kPart, values.size() - first);
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint32_t context = contexts[first + i];
      const std::uint32_t place = context * static_cast<std::uint32_t>(kBuckets) + bucket_of(values[first + i]);
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
    for (std::size_t i = context * kBuckets, bucket = 0; bucket < kBuckets; ++bucket, ++i) {
      counted[context][bucket] = static_cast<std::uint16_t>(counts[0][i] + counts[1][i]);
    }
  }
  return counted;
}

void shift_contexts(const Counted& counted, Contexts& contexts) noexcept {
  for (std::size_t context = 0; context < kClassContexts; ++context) {
    std::uint32_t total = 0;
    for (const std::uint16_t count : counted[context]) total += count;
    contexts.totals[context] = total;
    if (total > 0) contexts.shifted[context] = choose_shift(counted[context], total, kMaxShift);
  }
}

// From which context on the others cost less; takes them there.
std::size_t choose_others(const ClassSample& sample, Contexts& contexts) noexcept {
  std::size_t least = kClassContexts;
  for (std::size_t context = kClassContexts; context-- > 0;) {
    if (contexts.totals[context] == 0) continue;
    if (contexts.shifted[context].shift < sample.least_other_shift) break;
    least = context;
  }
  if (least == kClassContexts) return kClassContexts;
  const Counted counted = count(sample.contexts, sample.others, static_cast<std::uint32_t>(least));
  Contexts others;
  shift_contexts(counted, others);
  std::size_t first = kClassContexts;
  std::int64_t saved = 0;
  std::int64_t most_saved = 0;
  for (std::size_t context = kClassContexts; context-- > least;) {
    const std::uint32_t total = contexts.totals[context];
    if (total == 0) continue;
    saved += static_cast<std::int64_t>(contexts.shifted[context].cost(total)) -
             static_cast<std::int64_t>(others.shifted[context].cost(total));
    if (saved > most_saved) {
      most_saved = saved;
      first = context;
    }
  }
  std::copy(others.shifted.begin() + static_cast<std::ptrdiff_t>(first), others.shifted.end(),
            contexts.shifted.begin() + static_cast<std::ptrdiff_t>(first));
  return first;
}

// Does without low bytes where that costs next to nothing, and returns whether it does.
bool narrow_shifts(const Counted& counted, Contexts& contexts) noexcept {
  Contexts narrow = contexts;
  std::uint64_t cost = 0;
  std::uint64_t more = 0;
  for (std::size_t context = 0; context < kClassContexts; ++context) {
    const std::uint32_t total = contexts.totals[context];
    if (total == 0) continue;
    const std::uint64_t own = contexts.shifted[context].cost(total);
    cost += own;
    if (contexts.shifted[context].shift <= kNarrowShift) continue;
    narrow.shifted[context] = choose_shift(counted[context], total, kNarrowShift);
    const std::uint64_t other = narrow.shifted[context].cost(total);
    more += other > own ? other - own : 0;
  }
  if (more > cost / kPerNarrow) return false;
  contexts = narrow;
  return true;
}

}  // namespace

ClassChoice choose_class_tables(const ClassSample& sample) noexcept {
  const Counted counted = count(sample.contexts, sample.values, 0);
  Contexts contexts;
  shift_contexts(counted, contexts);
  ClassChoice choice;
  // Contexts that are measured otherwise have large shifts.
  if (!narrow_shifts(counted, contexts) && !sample.others.empty()) {
    choice.first_other = choose_others(sample, contexts);
  }

  Runs runs;
  runs.sums[0] = {};
  for (std::size_t context = 0; context < kClassContexts; ++context) {
    if (contexts.totals[context] == 0) continue;
    const Shifted& own = contexts.shifted[context];
    runs.contexts[runs.size] = static_cast<std::uint8_t>(context);
    runs.sums[runs.size + 1] = runs.sums[runs.size];
    for (std::size_t i = 0; i < kClassSymbols; ++i) runs.sums[runs.size + 1][i] += own.counts[i];
    ++runs.size;
    choice.cost += own.raw_bits(contexts.totals[context]) << kCostBits;
  }

  const std::uint64_t table_bits = (std::uint64_t{8 * kClassSymbols} << kCostBits) * sample.values.size();
  const Parting parting = part(runs, table_bits / std::max(sample.elements, std::size_t{1}));
  choice.tables.classes = parting.classes;
  for (std::size_t i = 0; i < parting.classes; ++i) {
    choice.cost +=
        choose_frequencies(runs.between(parting.begins[i], parting.begins[i + 1]), choice.tables.frequencies[i]);
  }
  // Contexts that the sample missed do as those before them.
  std::size_t run = 0;
  for (std::size_t context = 0; context < kClassContexts; ++context) {
    while (run + 1 < runs.size && runs.contexts[run + 1] <= context) ++run;
    std::size_t own_class = 0;
    while (own_class + 1 < parting.classes && parting.begins[own_class + 1] <= run) ++own_class;
    choice.tables.plans[context] =
        static_cast<std::uint8_t>(own_class * kPlanClassUnit + contexts.shifted[runs.contexts[run]].shift);
  }
  return choice;
}

}  // namespace bitsnap::entropy
