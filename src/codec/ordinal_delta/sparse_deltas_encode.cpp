// Writes the sparse form of ordinal_delta: spec.md, "Sparse". One pass over elements and base finds the changes, one
// over the base divides them by class; the remaining work depends on the number of changes.
#include "codec/ordinal_delta/sparse_deltas_encode.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "base/checked.hpp"
#include "base/cpu_dispatch.hpp"
#include "base/kernel_bits.hpp"
#include "codec/ordinal_delta/ordinal_delta.hpp"
#include "entropy/rans_table_encode.hpp"
#include "entropy/rice_encode.hpp"

namespace bitsnap::codec {
namespace {

// Six classes would save 2 % more, but each needs a mask (docs/decisions/0008-ordinal-deltas.md).
constexpr std::size_t kUsedClasses = 4;

// The header bits of a class.
constexpr std::uint64_t kListBits = 8 * (kListBytes + 1);

// The bits that tell which `some` of `all` are meant, in units of 2^-kCostBits.
std::uint64_t choice_cost(std::uint64_t all, std::uint64_t some) noexcept {
  const auto self = [](std::uint64_t n) {
    return n == 0 ? 0 : n * entropy::rans_logarithm(static_cast<std::uint32_t>(n));
  };
  const std::uint64_t parts = self(some) + self(all - some);
  return self(all) > parts ? self(all) - parts : 0;
}

struct ClassCounts {
  ContextCounts elements{};
  ContextCounts changed{};  // at most `elements`
};

// Divides the contexts into classes that make the masks of changed elements smallest, with `list_bits` for each class;
// returns the bits.
std::uint64_t choose_classes(const ClassCounts& counts, std::uint64_t list_bits, SparseClasses& classes) noexcept {
  constexpr std::size_t kEnds = entropy::kClassContexts + 1;
  constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  // Contexts without elements join the context before them.
  std::array<std::uint8_t, entropy::kClassContexts> firsts{};
  std::array<std::uint64_t, kEnds> elements{};
  std::array<std::uint64_t, kEnds> changed{};
  std::size_t size = 0;
  for (std::size_t context = 0; context < entropy::kClassContexts; ++context) {
    if (counts.elements[context] == 0 && size > 0) continue;
    firsts[size] = static_cast<std::uint8_t>(size == 0 ? 0 : context);
    elements[size + 1] = elements[size] + counts.elements[context];
    changed[size + 1] = changed[size] + counts.changed[context];
    ++size;
  }
  std::array<std::array<std::uint64_t, kEnds>, kUsedClasses + 1> least;
  std::array<std::array<std::size_t, kEnds>, kUsedClasses + 1> begin{};
  for (auto& row : least) row.fill(kNone);
  least[0][0] = 0;
  for (std::size_t from = 0; from < size; ++from) {
    for (std::size_t to = from + 1; to <= size; ++to) {
      const std::uint64_t cost =
          (list_bits << entropy::kCostBits) + choice_cost(elements[to] - elements[from], changed[to] - changed[from]);
      for (std::size_t used = 1; used <= kUsedClasses; ++used) {
        if (least[used - 1][from] == kNone || least[used - 1][from] + cost >= least[used][to]) continue;
        least[used][to] = least[used - 1][from] + cost;
        begin[used][to] = from;
      }
    }
  }
  classes.classes = 1;
  for (std::size_t used = 2; used <= kUsedClasses; ++used) {
    if (least[used][size] < least[classes.classes][size]) classes.classes = used;
  }
  std::size_t end = size;
  for (std::size_t c = classes.classes; c-- > 0;) {
    const std::size_t first = begin[c + 1][end];
    const std::size_t behind = end == size ? entropy::kClassContexts : firsts[end];
    std::fill(classes.class_of + firsts[first], classes.class_of + behind, static_cast<std::uint8_t>(c));
    end = first;
  }
  return least[classes.classes][size] >> entropy::kCostBits;
}

// The lists of one class.
struct ClassLists {
  std::span<std::uint32_t> gaps;  // places at first
  std::span<std::uint32_t> farther_gaps;
  std::span<std::uint32_t> distances;
  std::span<std::uint32_t> deltas;  // as two's complement
  ChangeList list;
  std::uint64_t bits = 0;
};

// Turns places into gaps, and chooses all parameters.
void fill_lists(unsigned distance_width, ClassLists& lists) noexcept {
  for (std::size_t i = lists.gaps.size(); i-- > 1;) lists.gaps[i] -= lists.gaps[i - 1] + 1;
  std::size_t farther = 0;
  std::size_t expected = 0;
  for (std::size_t i = 0; i < lists.deltas.size(); ++i) {
    const std::uint32_t delta = lists.deltas[i];
    const std::uint32_t distance = delta >> 31 != 0 ? 0 - delta : delta;
    if (distance == 1) continue;
    lists.farther_gaps[farther] = static_cast<std::uint32_t>(i - expected);
    lists.distances[farther++] = distance - 2;
    expected = i + 1;
  }
  lists.farther_gaps = lists.farther_gaps.first(farther);
  lists.distances = lists.distances.first(farther);
  const entropy::RiceChoice gap = entropy::choose_rice(lists.gaps, kGapWidth);
  const entropy::RiceChoice farther_gap = entropy::choose_rice(lists.farther_gaps, kGapWidth);
  const entropy::RiceChoice distance = entropy::choose_rice(lists.distances, distance_width);
  lists.list = {.changed = lists.deltas.size(),
                .farther = farther,
                .gap_parameter = gap.parameter,
                .farther_gap_parameter = farther_gap.parameter,
                .distance_parameter = distance.parameter};
  lists.bits = gap.bits + lists.deltas.size() + farther_gap.bits + distance.bits;
}

void put_lists(const ClassLists& lists, unsigned distance_width, entropy::RiceWriter& bits) noexcept {
  for (const std::uint32_t gap : lists.gaps) bits.put(gap, lists.list.gap_parameter, kGapWidth);
  for (const std::uint32_t delta : lists.deltas) bits.put_bits(delta >> 31, 1);
  for (const std::uint32_t gap : lists.farther_gaps) bits.put(gap, lists.list.farther_gap_parameter, kGapWidth);
  for (const std::uint32_t distance : lists.distances) {
    bits.put(distance, lists.list.distance_parameter, distance_width);
  }
}

std::byte* put_header(const SparsePlan& plan, const SparseClasses& classes, std::span<const ClassLists> lists,
                      std::byte* out) noexcept {
  *out++ = static_cast<std::byte>(OrdinalDeltaForm::sparse);
  *out++ = static_cast<std::byte>(plan.geometry.top);
  *out++ = static_cast<std::byte>(classes.classes);
  for (std::size_t c = 1; c < classes.classes; ++c) {
    *out++ = static_cast<std::byte>(std::find(classes.class_of, classes.class_of + entropy::kClassContexts, c) -
                                    classes.class_of);
  }
  for (const ClassLists& own : lists) {
    const ChangeList& list = own.list;
    store_le(out, static_cast<std::uint32_t>(list.changed | list.gap_parameter << kCountBits |
                                             list.farther_gap_parameter << (kCountBits + 5)));
    store_le(out + 4, static_cast<std::uint32_t>(list.farther | list.distance_parameter << kCountBits));
    out += kListBytes;
  }
  return out;
}

// The changed elements of a chunk in order: contexts and deltas of element_bytes each.
struct Changes {
  std::span<const std::uint8_t> contexts;
  const std::uint8_t* deltas;
};

// Allocates the lists of each class and fills in its deltas.
template <typename Element>
Result<void> part_lists(const Changes& changes, const SparseClasses& classes, std::span<ClassLists> lists,
                        Scratch& scratch) {
  const std::size_t changed = changes.contexts.size();
  const std::size_t each = changed + kMaxSparseClasses * kPlacesBehind;
  BITSNAP_ASSIGN(const std::span<std::uint32_t> room, scratch.take_array<std::uint32_t>(4 * each));
  std::array<std::size_t, kMaxSparseClasses> sizes{};
  for (const std::uint8_t context : changes.contexts) ++sizes[classes.class_of[context]];
  std::array<std::uint32_t*, kMaxSparseClasses> next{};
  std::size_t begin = 0;
  for (std::size_t c = 0; c < classes.classes; ++c) {
    const auto own = [&](std::size_t number) { return room.subspan(number * each + begin, sizes[c]); };
    lists[c].deltas = own(0);
    lists[c].gaps = own(1);
    lists[c].farther_gaps = own(2);
    lists[c].distances = own(3);
    next[c] = lists[c].deltas.data();
    begin += sizes[c] + kPlacesBehind;
  }
  for (std::size_t i = 0; i < changed; ++i) {
    const auto delta = static_cast<std::make_signed_t<Element>>(load_at<Element>(changes.deltas, i));
    *next[classes.class_of[changes.contexts[i]]]++ = static_cast<std::uint32_t>(static_cast<std::int32_t>(delta));
  }
  return {};
}

}  // namespace

SparsePlan plan_sparse(const DeltaSample& sample, std::size_t elements) noexcept {
  SparsePlan plan{.geometry = sample.geometry, .elements = {}, .sampled = sample.values.size(), .payload_bytes = 0};
  ClassCounts counts;
  std::uint64_t changed = 0;
  std::uint64_t farther = 0;
  std::uint64_t distance_bits = 0;
  for (std::size_t i = 0; i < sample.values.size(); ++i) {
    const std::uint32_t value = sample.values[i];
    ++counts.elements[sample.contexts[i]];
    if (value == 0) continue;
    ++counts.changed[sample.contexts[i]];
    ++changed;
    if (value > 2) {
      ++farther;
      distance_bits += static_cast<std::uint64_t>(std::bit_width(value >> 1)) + 1;
      // The sample does not show how much farther an element with kMostDeltas is.
      if (value == kMostDeltas) distance_bits += 4 * (sample.geometry.element_bytes - 2);
    }
  }
  plan.elements = counts.elements;
  SparseClasses classes;
  const std::uint64_t bits =
      choose_classes(counts, kListBits * plan.sampled / std::max(elements, plan.sampled), classes) + changed +
      (choice_cost(changed, farther) >> entropy::kCostBits) + distance_bits;
  // A list takes a few percent more than its entropy.
  const std::uint64_t list_bits = bits + bits / 10;
  plan.payload_bytes =
      sparse_header_bytes(classes.classes) + list_bits * elements / std::max<std::size_t>(plan.sampled, 1) / 8;
  return plan;
}

Result<PayloadSize> encode_sparse_deltas(const DeltasToEncode& chunk, const SparsePlan& plan, ByteSpan out,
                                         Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::size_t element_bytes = plan.geometry.element_bytes;
  const std::size_t elements = chunk.count();
  PartToEncode all;
  BITSNAP_TRY(all.open(chunk, elements, scratch));
  if (!all.take(0, elements)) return std::nullopt;
  const auto* const base = reinterpret_cast<const std::uint8_t*>(all.base.data());
  BITSNAP_ASSIGN(const std::span<std::uint64_t> mask, scratch.take_array<std::uint64_t>(elements / 64 + 1));
  BITSNAP_ASSIGN(const std::span<std::uint8_t> contexts, scratch.take_array<std::uint8_t>(elements + 64));
  BITSNAP_ASSIGN(const std::span<std::uint8_t> deltas,
                 scratch.take_array<std::uint8_t>((elements + 64) * element_bytes));
  const std::size_t changed = kernels<SparseChangeKernels>().find[std::countr_zero(element_bytes)](
      reinterpret_cast<const std::uint8_t*>(all.data.data()), base, elements, plan.geometry, mask.data(),
      contexts.data(), deltas.data());
  const Changes changes{.contexts = contexts.first(changed), .deltas = deltas.data()};

  ClassCounts counts;
  for (const std::uint8_t own : changes.contexts) ++counts.changed[own];
  for (std::size_t i = 0; i < entropy::kClassContexts; ++i) {
    const std::size_t scaled = plan.elements[i] * elements / std::max<std::size_t>(plan.sampled, 1);
    counts.elements[i] = std::max(static_cast<std::uint32_t>(scaled), counts.changed[i]);
  }
  SparseClasses classes;
  static_cast<void>(choose_classes(counts, kListBits, classes));

  std::array<ClassLists, kMaxSparseClasses> lists;
  switch (element_bytes) {
    case 1: BITSNAP_TRY(part_lists<std::uint8_t>(changes, classes, lists, scratch)); break;
    case 2: BITSNAP_TRY(part_lists<std::uint16_t>(changes, classes, lists, scratch)); break;
    default: BITSNAP_TRY(part_lists<std::uint32_t>(changes, classes, lists, scratch)); break;
  }
  std::array<std::uint32_t*, kMaxSparseClasses> places{};
  for (std::size_t c = 0; c < classes.classes; ++c) places[c] = lists[c].gaps.data();
  kernels<SparseChangeKernels>().locate[std::countr_zero(element_bytes)](base, mask.data(), elements, plan.geometry,
                                                                         classes, places.data());
  const auto distance_width = static_cast<unsigned>(8 * element_bytes);
  std::uint64_t bits = 0;
  for (std::size_t c = 0; c < classes.classes; ++c) {
    fill_lists(distance_width, lists[c]);
    bits += lists[c].bits;
  }
  const std::uint64_t size = sparse_header_bytes(classes.classes) + divide_up<std::uint64_t>(bits, 8);
  if (size >= chunk.data.size()) return std::nullopt;
  entropy::RiceWriter writer(put_header(plan, classes, std::span(lists).first(classes.classes), out.data()));
  for (std::size_t c = 0; c < classes.classes; ++c) put_lists(lists[c], distance_width, writer);
  return static_cast<std::size_t>(size);
}

}  // namespace bitsnap::codec
