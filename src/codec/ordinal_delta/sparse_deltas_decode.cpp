// Reads the sparse form of ordinal_delta: spec.md, "Sparse". Turns the lists into a mask and a run of deltas for each
// class; one pass over the base then applies them.
#include "codec/ordinal_delta/sparse_deltas_decode.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "base/cpu_dispatch.hpp"
#include "codec/ordinal_delta/ordinal_delta.hpp"
#include "codec/ordinal_delta/sparse_deltas.hpp"
#include "codec/payload_checks.hpp"
#include "entropy/rice.hpp"

namespace bitsnap::codec {
namespace {

constexpr std::size_t kReadableBehind = 64;  // after the deltas of a class

struct Header {
  std::uint8_t top = 0;
  SparseClasses classes;
  std::array<ChangeList, kMaxSparseClasses> lists;
  std::size_t changed = 0;  // of all classes
};

Result<void> read_classes(ByteCursor& cursor, SparseClasses& classes) {
  BITSNAP_ASSIGN(classes.classes, cursor.read<std::uint8_t>("number of classes"));
  if (classes.classes == 0 || classes.classes > kMaxSparseClasses) {
    return corrupt("payload has {} classes, expected 1 to {}", classes.classes, kMaxSparseClasses);
  }
  BITSNAP_ASSIGN(const ConstByteSpan begins, cursor.take(classes.classes - 1, "first contexts of the classes"));
  std::size_t least = 1;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const auto begin = std::to_integer<std::size_t>(begins[i]);
    if (begin < least || begin >= entropy::kClassContexts) {
      return corrupt("class {} begins with context {}, expected {} to {}", i + 1, begin, least,
                     entropy::kClassContexts - 1);
    }
    std::fill(classes.class_of + begin, classes.class_of + entropy::kClassContexts, static_cast<std::uint8_t>(i + 1));
    least = begin + 1;
  }
  return {};
}

Result<ChangeList> read_list(ByteCursor& cursor, std::size_t elements, unsigned distance_width) {
  BITSNAP_ASSIGN(const auto first, cursor.read<std::uint32_t>("number of changed elements"));
  BITSNAP_ASSIGN(const auto second, cursor.read<std::uint32_t>("number of farther elements"));
  const ChangeList list{.changed = first & kCountMask,
                        .farther = second & kCountMask,
                        .gap_parameter = first >> kCountBits & kParameterMask,
                        .farther_gap_parameter = first >> (kCountBits + 5) & kParameterMask,
                        .distance_parameter = second >> kCountBits & kParameterMask};
  if (first >> (kCountBits + 10) != 0 || second >> (kCountBits + 5) != 0) {
    return corrupt("reserved bits of a list are set");
  }
  if (list.changed > elements || list.farther > list.changed) {
    return corrupt(
        "list has {} changed and {} farther elements, expected at most {}, and not more farther than changed ones",
        list.changed, list.farther, elements);
  }
  if (list.gap_parameter >= kGapWidth || list.farther_gap_parameter >= kGapWidth ||
      list.distance_parameter >= distance_width) {
    return corrupt("parameters of a list are {}, {} and {}, expected below {}, {} and {}", list.gap_parameter,
                   list.farther_gap_parameter, list.distance_parameter, kGapWidth, kGapWidth, distance_width);
  }
  return list;
}

Result<Header> read_header(ByteCursor& cursor, std::size_t elements, unsigned distance_width) {
  Header header;
  BITSNAP_ASSIGN(header.top, cursor.read<std::uint8_t>("top exponent"));
  BITSNAP_TRY(read_classes(cursor, header.classes));
  for (std::size_t c = 0; c < header.classes.classes; ++c) {
    BITSNAP_ASSIGN(header.lists[c], read_list(cursor, elements, distance_width));
    header.changed += header.lists[c].changed;
  }
  if (header.changed > elements) {
    return corrupt("{} changed elements, expected at most {}", header.changed, elements);
  }
  return header;
}

Result<void> fail_overrun() { return fail(ErrorKind::truncated, "lists need more bits than the payload has"); }

// Names the error: if the bits ran out, the gap was not read from the payload.
Result<void> fail_place(const entropy::RiceReader& bits, const char* what, std::size_t place, std::size_t size) {
  if (bits.overran()) return fail_overrun();
  return corrupt("gap leads to {} {}, expected below {}", what, place, size);
}

// Reads the list of one class into `mask` and `deltas`.
template <typename Element>
Result<void> read_changes(entropy::RiceReader& bits, const ChangeList& list, std::size_t elements, std::uint64_t* mask,
                          Element* deltas) {
  std::size_t place = 0;
  for (std::size_t i = 0; i < list.changed; ++i, ++place) {
    place += bits.read(list.gap_parameter, kGapWidth);
    if (place >= elements) return fail_place(bits, "element", place, elements);
    mask[place / 64] |= std::uint64_t{1} << place % 64;
  }
  for (std::size_t i = 0; i < list.changed; ++i) {
    deltas[i] = static_cast<Element>(bits.read_bit() ? -1 : 1);
  }
  // Reads the gaps of the farther elements and their distances, which follow all gaps.
  entropy::RiceReader distances = bits;
  for (std::size_t i = 0; i < list.farther; ++i) {
    static_cast<void>(distances.read(list.farther_gap_parameter, kGapWidth));
  }
  place = 0;
  for (std::size_t i = 0; i < list.farther; ++i, ++place) {
    place += bits.read(list.farther_gap_parameter, kGapWidth);
    if (place >= list.changed) return fail_place(bits, "changed element", place, list.changed);
    const auto more = static_cast<Element>(distances.read(list.distance_parameter, 8 * sizeof(Element)) + 1);
    deltas[place] = static_cast<Element>(deltas[place] + (deltas[place] == 1 ? more : static_cast<Element>(0 - more)));
  }
  bits = distances;
  return {};
}

template <typename Element>
Result<void> decode(ConstByteSpan payload, const MovedElements& elements, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::size_t element_count = elements.count();
  ByteCursor cursor(payload.subspan(1));
  BITSNAP_ASSIGN(const Header header, read_header(cursor, element_count, 8 * sizeof(Element)));
  DeltaGeometry geometry = geometry_of(elements.floats);
  geometry.top = header.top;

  const std::size_t classes = header.classes.classes;
  const std::size_t words = element_count / 64 + 2;
  BITSNAP_ASSIGN(const std::span<std::uint64_t> masks, scratch.take_array<std::uint64_t>(classes * words));
  BITSNAP_ASSIGN(const std::span<Element> deltas,
                 scratch.take_array<Element>(header.changed + kReadableBehind / sizeof(Element)));
  std::ranges::fill(masks, std::uint64_t{0});
  const std::uint64_t* mask_of[kMaxSparseClasses];
  const std::uint8_t* deltas_of[kMaxSparseClasses];
  entropy::RiceReader bits(payload.subspan(1 + cursor.offset()));
  Element* next = deltas.data();
  for (std::size_t c = 0; c < classes; ++c) {
    mask_of[c] = masks.data() + c * words;
    deltas_of[c] = reinterpret_cast<const std::uint8_t*>(next);
    BITSNAP_TRY(read_changes(bits, header.lists[c], element_count, masks.data() + c * words, next));
    next += header.lists[c].changed;
  }
  if (bits.overran()) return fail_overrun();
  if (!bits.at_end()) return corrupt("bits after the lists");

  std::size_t used[kMaxSparseClasses];
  ShortPart all;
  BITSNAP_TRY(all.open(elements, element_count, scratch));
  const ShortPart::Part part = all.begin(0, element_count);
  kernels<SparseChangeKernels>().place[std::countr_zero(geometry.element_bytes)](
      reinterpret_cast<const std::uint8_t*>(part.base), element_count, geometry, header.classes, mask_of, deltas_of,
      reinterpret_cast<std::uint8_t*>(part.out), used);
  all.finish();
  for (std::size_t c = 0; c < classes; ++c) {
    if (used[c] != header.lists[c].changed) {
      return corrupt("gaps lead beyond the last element of class {}", c);
    }
  }
  return {};
}

}  // namespace

Result<void> decode_sparse_deltas(ConstByteSpan payload, const MovedElements& elements, Scratch& scratch) {
  switch (elements.floats.element_bytes()) {
    case 1: return decode<std::uint8_t>(payload, elements, scratch);
    case 2: return decode<std::uint16_t>(payload, elements, scratch);
    default: return decode<std::uint32_t>(payload, elements, scratch);
  }
}

}  // namespace bitsnap::codec
