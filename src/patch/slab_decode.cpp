// The steps of decoding one slab, in the order of its payload.
#include "patch/slab_decode.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/cpu_dispatch.hpp"
#include "base/try.hpp"
#include "codec/payload_checks.hpp"
#include "codec/registry.hpp"
#include "entropy/rice.hpp"
#include "patch/numbers.hpp"

namespace bitsnap::patch {
namespace {

using codec::corrupt;

// The bytes of a count or size at most.
constexpr unsigned kCountBytes = 4;

// A payload of a codec, and how it is decoded.
struct CodecCall {
  const codec::Decoder* decoder = nullptr;
  bool uses_base = false;
};

Result<CodecCall> read_coded(ByteCursor& cursor, DType dtype) {
  BITSNAP_ASSIGN(const auto id, cursor.read<std::uint8_t>("codec"));
  BITSNAP_ASSIGN(const auto inputs, cursor.read<std::uint8_t>("number of inputs"));
  const codec::Decoder* const decoder = codec::find_decoder(std::uint16_t{id});
  if (decoder == nullptr) return fail(ErrorKind::unsupported, fmt::format("unknown codec {}", id));
  const codec::Input input{codec::InputKind::base, dtype, {}};
  if (inputs > 1 || !decoder->accepts(dtype, std::span(&input, inputs))) {
    return corrupt("codec {} takes no {} inputs of dtype {}", decoder->name(), inputs, dtype_name(dtype));
  }
  return CodecCall{.decoder = decoder, .uses_base = inputs == 1};
}

Result<void> decode_elements(const CodecCall& coded, DType dtype, ConstByteSpan payload, ConstByteSpan base,
                             ByteSpan out, Scratch& scratch) {
  const codec::Input input{codec::InputKind::base, dtype, base};
  const codec::ChunkContext context{.dtype = dtype,
                                    .elements = out.size() / element_size(dtype),
                                    .inputs = std::span(&input, coded.uses_base ? 1 : 0)};
  return coded.decoder->decode(payload, context, out, scratch);
}

Result<void> decode_whole(ByteCursor& cursor, const SlabMemory& base, Scratch& scratch, StagedSlab& to) {
  const std::size_t elements = base.elements();
  if (elements > kMostWholeElements) {
    return corrupt("{} elements are coded as a whole, expected at most {}", elements, kMostWholeElements);
  }
  BITSNAP_ASSIGN(const CodecCall coded, read_coded(cursor, base.dtype));
  BITSNAP_ASSIGN(const ConstByteSpan payload, cursor.take(cursor.remaining(), "payload"));
  ConstByteSpan from = base.bytes.front();
  if (base.bytes.size() > 1) {
    BITSNAP_ASSIGN(const ByteSpan all, scratch.take(elements * base.element_bytes()));
    std::byte* next = all.data();
    for (const ConstByteSpan piece : base.bytes) next = std::ranges::copy(piece, next).out;
    from = all;
  }
  to.is_whole = true;
  to.values.resize(elements * base.element_bytes());
  BITSNAP_TRY(decode_elements(coded, base.dtype, payload, from, to.values, scratch));
  to.changed.resize(elements);
  const std::size_t bytes = base.element_bytes();
  for (std::size_t i = 0; i < elements; ++i) {
    to.changed[i] = std::memcmp(to.values.data() + i * bytes, from.data() + i * bytes, bytes) != 0;
  }
  return {};
}

struct ClassList {
  std::uint64_t changed = 0;
  unsigned parameter = 0;
};

struct Header {
  SlabClasses classes;
  std::array<ClassList, kMaxClasses> lists;
  std::size_t listed = 0;  // changed elements of all classes
  std::size_t farther = 0;
  unsigned gap_parameter = 0;
  unsigned distance_parameter = 0;
  ConstByteSpan dense;  // empty: no dense element changes
  CodecCall coded;
};

Result<unsigned> read_parameter(ByteCursor& cursor, unsigned width) {
  BITSNAP_ASSIGN(const auto parameter, cursor.read<std::uint8_t>("parameter"));
  if (parameter >= width) return corrupt("parameter is {}, expected below {}", parameter, width);
  return unsigned{parameter};
}

Result<void> read_classes(ByteCursor& cursor, const codec::DeltaGeometry& geometry, SlabClasses& to) {
  BITSNAP_ASSIGN(const auto classes, cursor.read<std::uint8_t>("number of classes"));
  if (classes > kMaxClasses) return corrupt("{} classes, expected at most {}", classes, kMaxClasses);
  to.classes = classes;
  std::uint32_t least = 0;
  for (std::size_t i = 0; i <= classes; ++i) {
    BITSNAP_ASSIGN(const auto byte, cursor.read<std::uint8_t>("limits of the classes"));
    const std::uint32_t first = std::uint32_t{byte} + (i > 0 && i == classes ? 1 : 0);
    if (first < least || first > exponents_of(geometry)) {
      return corrupt("limit {} is exponent {}, expected {} to {}", i, first, least, exponents_of(geometry));
    }
    to.limits[i] = first << geometry.mantissa_bits;
    least = first + 1;
  }
  return {};
}

Result<Header> read_header(ByteCursor& cursor, DType dtype, std::size_t elements) {
  Header header;
  BITSNAP_TRY(read_classes(cursor, codec::geometry_of(dtype), header.classes));
  for (std::size_t c = 0; c < header.classes.classes; ++c) {
    BITSNAP_ASSIGN(header.lists[c].changed, read_number(cursor, kCountBytes, "number of changed elements"));
    BITSNAP_ASSIGN(header.lists[c].parameter, read_parameter(cursor, kGapWidth));
    header.listed += header.lists[c].changed;
  }
  if (header.listed > elements) return corrupt("{} changed elements of {}", header.listed, elements);
  BITSNAP_ASSIGN(header.farther, read_number(cursor, kCountBytes, "number of farther elements"));
  if (header.farther > header.listed)
    return corrupt("{} of {} changed elements moved farther", header.farther, header.listed);
  if (header.farther > 0) {
    BITSNAP_ASSIGN(header.gap_parameter, read_parameter(cursor, kGapWidth));
    BITSNAP_ASSIGN(header.distance_parameter, read_parameter(cursor, static_cast<unsigned>(8 * element_size(dtype))));
  }
  BITSNAP_ASSIGN(const std::uint64_t dense, read_number(cursor, kCountBytes, "size of the dense elements"));
  if (dense > 0) {
    BITSNAP_ASSIGN(header.coded, read_coded(cursor, dtype));
    BITSNAP_ASSIGN(header.dense, cursor.take(dense, "dense elements"));
  }
  return header;
}

// Decodes the changes of a slab; all buffers lie in the scratch of the caller's frame.
class ChangesDecoder {
 public:
  ChangesDecoder(const SlabMemory& base, Scratch& scratch) noexcept
      : base_(base), scratch_(scratch), elements_(base.elements()), kernel_(kernel_index(base.dtype)) {}

  Result<void> decode(ByteCursor& cursor, SlabHasher& hasher, StagedSlab& to) {
    BITSNAP_ASSIGN(header_, read_header(cursor, base_.dtype, elements_));
    BITSNAP_ASSIGN(const ConstByteSpan lists, cursor.take(cursor.remaining(), "lists"));
    entropy::RiceReader bits(lists);
    for (std::size_t c = 0; c < header_.classes.classes; ++c)
      BITSNAP_TRY(read_ranks(bits, header_.lists[c], ranks_[c]));
    BITSNAP_TRY(read_all_moves(bits));
    if (bits.overran()) return fail(ErrorKind::truncated, "lists need more bits than the payload has");
    if (!bits.at_end()) return corrupt("bits after the lists");
    BITSNAP_TRY(place(hasher));
    BITSNAP_TRY(decode_dense());
    give(to);
    return {};
  }

 private:
  Result<void> read_all_moves(entropy::RiceReader& bits) {
    switch (base_.element_bytes()) {
      case 1: return read_moves<std::uint8_t>(bits);
      case 2: return read_moves<std::uint16_t>(bits);
      default: return read_moves<std::uint32_t>(bits);
    }
  }

  // The ranks of the changed elements of a class.
  Result<void> read_ranks(entropy::RiceReader& bits, const ClassList& list, ClassRanks& to) {
    BITSNAP_ASSIGN(const std::span<std::uint32_t> ranks, scratch_.take_array<std::uint32_t>(list.changed));
    std::size_t rank = 0;
    for (std::uint32_t& own : ranks) {
      rank += bits.read(list.parameter, kGapWidth);
      if (rank >= elements_) {
        if (bits.overran()) return fail(ErrorKind::truncated, "lists need more bits than the payload has");
        return corrupt("gap leads to element {} of a class, expected below {}", rank, elements_);
      }
      own = static_cast<std::uint32_t>(rank++);
    }
    to = {.ranks = ranks.data(), .count = ranks.size(), .next = 0, .passed = 0};
    return {};
  }

  // How far each listed element moves, modulo the size of an element.
  template <typename Element>
  Result<void> read_moves(entropy::RiceReader& bits) {
    BITSNAP_ASSIGN(moves_, scratch_.take(header_.listed * sizeof(Element)));
    auto* const moves = reinterpret_cast<Element*>(moves_.data());
    for (std::size_t i = 0; i < header_.listed; ++i) moves[i] = static_cast<Element>(bits.read_bit() ? -1 : 1);
    BITSNAP_ASSIGN(const std::span<std::uint32_t> farther, scratch_.take_array<std::uint32_t>(header_.farther));
    std::size_t at = 0;
    for (std::uint32_t& own : farther) {
      at += bits.read(header_.gap_parameter, kGapWidth);
      if (at >= header_.listed) {
        if (bits.overran()) return fail(ErrorKind::truncated, "lists need more bits than the payload has");
        return corrupt("gap leads to changed element {}, expected below {}", at, header_.listed);
      }
      own = static_cast<std::uint32_t>(at++);
    }
    for (const std::uint32_t own : farther) {
      const std::uint32_t distance = bits.read(header_.distance_parameter, 8 * sizeof(Element)) + 2;
      moves[own] = static_cast<Element>(moves[own] == 1 ? distance : 0 - distance);
    }
    return {};
  }

  // The elements with a bit in `words`, and their places.
  std::size_t gather(ConstByteSpan from, std::span<const std::uint64_t> words, std::uint32_t first_place,
                     std::span<std::uint32_t> places, ByteSpan out) const noexcept {
    const std::size_t count = kernels<SlabKernels>().list(words.data(), words.size(), first_place, places.data());
    kernels<SlabKernels>().take[kernel_](as_u8(from), places.data(), count, first_place, as_u8(out.data()));
    return count;
  }

  // Finds the dense elements and the listed ones, and gathers the dense ones of the base. Hashes the base on the way.
  Result<void> place(SlabHasher& hasher) {
    const std::size_t words = base_.words();
    const std::size_t bytes = base_.element_bytes();
    BITSNAP_ASSIGN(dense_, scratch_.take_array<std::uint64_t>(words));
    BITSNAP_ASSIGN(const std::span<std::uint64_t> listed, scratch_.take_array<std::uint64_t>(words));
    BITSNAP_ASSIGN(listed_places_, scratch_.take_array<std::uint32_t>(header_.listed + kWordElements));
    BITSNAP_ASSIGN(listed_values_, scratch_.take((header_.listed + kWordElements) * bytes));
    std::size_t gathered = 0;
    for (std::size_t p = 0; p < base_.pieces.size(); ++p) {
      std::size_t word = first_word(base_.pieces[p]);
      for (std::size_t at = 0; at < base_.bytes[p].size(); at += kHashBlockBytes) {
        const ConstByteSpan block = base_.bytes[p].subspan(at, std::min(kHashBlockBytes, base_.bytes[p].size() - at));
        hasher.add(block);
        dense_elements_ +=
            kernels<SlabKernels>().place[kernel_](as_u8(block), block.size() / bytes, header_.classes,
                                                  dense_.data() + word, listed.data() + word, ranks_.data());
        const std::size_t block_words = divide_up(block.size() / bytes, kWordElements);
        gathered += gather(block, listed.subspan(word, block_words), static_cast<std::uint32_t>(word * kWordElements),
                           listed_places_.subspan(gathered), listed_values_.subspan(gathered * bytes));
        word += block_words;
      }
    }
    for (std::size_t c = 0; c < header_.classes.classes; ++c) {
      if (ranks_[c].next != ranks_[c].count) return corrupt("gaps lead beyond the last element of class {}", c);
    }
    return {};
  }

  // Decodes the dense elements, and picks those that change.
  Result<void> decode_dense() {
    if (header_.dense.empty()) return {};
    const std::size_t count = dense_elements_;
    if (count == 0 || count > kMostWholeElements) {
      return corrupt("{} dense elements, expected 1 to {}", count, kMostWholeElements);
    }
    const std::size_t bytes = base_.element_bytes();
    BITSNAP_ASSIGN(const ByteSpan from, scratch_.take((count + kWordElements) * bytes));
    BITSNAP_ASSIGN(const ByteSpan values, scratch_.take(count * bytes));
    BITSNAP_ASSIGN(const std::span<std::uint32_t> places, scratch_.take_array<std::uint32_t>(count + kWordElements));
    std::size_t gathered = 0;
    for (std::size_t p = 0; p < base_.pieces.size(); ++p) {
      const Piece& piece = base_.pieces[p];
      gathered += gather(base_.bytes[p],
                         dense_.subspan(first_word(piece), divide_up<std::size_t>(piece.elements, kWordElements)),
                         piece.first_place, places.subspan(gathered), from.subspan(gathered * bytes));
    }
    BITSNAP_TRY(
        decode_elements(header_.coded, base_.dtype, header_.dense, from.first(count * bytes), values, scratch_));
    BITSNAP_ASSIGN(dense_places_, scratch_.take_array<std::uint32_t>(count + kWordElements));
    BITSNAP_ASSIGN(dense_values_, scratch_.take((count + kWordElements) * bytes));
    dense_changes_ = kernels<SlabKernels>().pick[kernel_](as_u8(values), as_u8(from), places.data(), count,
                                                          as_u8(dense_values_.data()), dense_places_.data());
    return {};
  }

  void give(StagedSlab& to) {
    const std::size_t bytes = base_.element_bytes();
    to.listed = header_.listed;
    to.places.reserve(header_.listed + dense_changes_);
    to.places.assign(listed_places_.data(), listed_places_.data() + header_.listed);
    to.places.insert(to.places.end(), dense_places_.data(), dense_places_.data() + dense_changes_);
    to.values.resize((header_.listed + dense_changes_) * bytes);
    kernels<SlabKernels>().move[kernel_](as_u8(ConstByteSpan(listed_values_)), as_u8(ConstByteSpan(moves_)),
                                         header_.listed, as_u8(to.values.data()));
    std::copy_n(dense_values_.data(), dense_changes_ * bytes, to.values.data() + header_.listed * bytes);
  }

  const SlabMemory& base_;
  Scratch& scratch_;
  const std::size_t elements_;
  const std::size_t kernel_;
  Header header_;
  std::array<ClassRanks, kMaxClasses> ranks_{};
  ByteSpan moves_;
  std::span<std::uint64_t> dense_;
  std::size_t dense_elements_ = 0;
  std::span<std::uint32_t> listed_places_;
  ByteSpan listed_values_;                 // of the base
  std::span<std::uint32_t> dense_places_;  // of the dense elements that change
  ByteSpan dense_values_;
  std::size_t dense_changes_ = 0;
};

template <typename Element>
void scatter(std::span<const std::uint32_t> places, const std::byte* values, std::uint32_t first, std::byte* out) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    std::memcpy(out + std::size_t{places[i] - first} * sizeof(Element), values + i * sizeof(Element), sizeof(Element));
  }
}

}  // namespace

Result<void> decode_slab(ConstByteSpan payload, const SlabMemory& base, Scratch& scratch, SlabHasher& hasher,
                         StagedSlab& to) {
  const Scratch::Frame frame(scratch);
  to = {};
  ByteCursor cursor(payload);
  BITSNAP_ASSIGN(const auto method, cursor.read<std::uint8_t>("method"));
  if (method == static_cast<std::uint8_t>(SlabMethod::whole)) {
    for (const ConstByteSpan piece : base.bytes) hasher.add(piece);
    return decode_whole(cursor, base, scratch, to);
  }
  if (method != static_cast<std::uint8_t>(SlabMethod::changes)) return corrupt("unknown method {}", method);
  if (!codec::has_deltas(base.dtype)) return corrupt("changes are listed of dtype {}", dtype_name(base.dtype));
  return ChangesDecoder(base, scratch).decode(cursor, hasher, to);
}

void write_changes(const StagedSlab& slab, const Piece& piece, std::size_t at, std::size_t element_bytes,
                   ByteSpan out) noexcept {
  if (slab.is_whole) {
    std::memcpy(out.data(), slab.values.data() + at * element_bytes, out.size());
    return;
  }
  const std::byte* values = slab.values.data();
  for (const std::span<const std::uint32_t> part : slab.parts()) {
    const auto begin = std::ranges::lower_bound(part, piece.first_place);
    const auto end = std::ranges::lower_bound(begin, part.end(), piece.first_place + piece.elements);
    const std::byte* const own = values + (begin - part.begin()) * static_cast<std::ptrdiff_t>(element_bytes);
    switch (element_bytes) {
      case 1: scatter<std::uint8_t>({begin, end}, own, piece.first_place, out.data()); break;
      case 2: scatter<std::uint16_t>({begin, end}, own, piece.first_place, out.data()); break;
      default: scatter<std::uint32_t>({begin, end}, own, piece.first_place, out.data()); break;
    }
    values += part.size() * element_bytes;
  }
}

}  // namespace bitsnap::patch
