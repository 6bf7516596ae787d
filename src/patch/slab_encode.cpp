// The steps of encoding one slab, in the order of encode_slab().
#include "patch/slab_encode.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "base/cpu_dispatch.hpp"
#include "base/try.hpp"
#include "codec/registry_encode.hpp"
#include "entropy/rice_encode.hpp"
#include "patch/class_choice_encode.hpp"
#include "patch/numbers.hpp"

namespace bitsnap::patch {
namespace {

using codec::CodecId;

// The exponents of about this many groups of 64 elements are counted.
constexpr std::size_t kCountedGroups = 256;
// As the counts are estimates, fewer elements become dense than may be.
constexpr std::size_t kSignsAtOnce = 32;
constexpr std::uint64_t kMostDense = kMostWholeElements * 7 / 8;

template <typename Element>
Element element_at(ConstByteSpan bytes, std::size_t i) noexcept {
  return load_le<Element>(bytes.data() + i * sizeof(Element));
}

// A payload of a codec, and which.
struct CodedElements {
  CodecId codec = CodecId::raw;
  bool uses_base = false;
  ConstByteSpan payload;
};

// The smallest of what a few codecs make of the elements; the unchanged elements if nothing is smaller. The result lies
// in `scratch`.
Result<CodedElements> encode_elements(DType dtype, ConstByteSpan data, ConstByteSpan base, Scratch& scratch) {
  struct Way {
    CodecId codec;
    bool uses_base;
  };
  static constexpr std::array kFloats = {Way{CodecId::ordinal_delta, true}, Way{CodecId::float_split, false}};
  static constexpr std::array kOthers = {Way{CodecId::byte_group, true}, Way{CodecId::byte_group, false}};
  CodedElements best{.payload = data};
  for (const Way& way : codec::has_deltas(dtype) ? kFloats : kOthers) {
    const codec::Input input{codec::InputKind::base, dtype, base};
    codec::EncodeContext context;
    context.dtype = dtype;
    context.elements = data.size() / element_size(dtype);
    context.inputs = std::span(&input, way.uses_base ? 1 : 0);
    const codec::Encoder& encoder = *codec::find_encoder(way.codec);
    if (!encoder.decoder().accepts(dtype, context.inputs)) continue;
    // Most of what a slab changes is explained by its base; then nothing else is tried.
    if (best.uses_base && best.payload.size() < data.size() * 3 / 4) break;
    BITSNAP_ASSIGN(const ByteSpan room, scratch.take(encoder.max_encoded_size(dtype, context.elements)));
    BITSNAP_ASSIGN(const codec::PayloadSize size, encoder.encode(data, context, room, scratch));
    if (size && *size < best.payload.size()) {
      best = {.codec = way.codec, .uses_base = way.uses_base, .payload = room.first(*size)};
    }
  }
  return best;
}

void put_coded(const CodedElements& coded, std::vector<std::byte>& to) {
  to.push_back(static_cast<std::byte>(coded.codec));
  to.push_back(static_cast<std::byte>(coded.uses_base ? 1 : 0));
}

// The pieces one after another; in place if there is one.
Result<ConstByteSpan> join_pieces(const SlabMemory& slab, Scratch& scratch) {
  if (slab.bytes.size() == 1) return slab.bytes.front();
  BITSNAP_ASSIGN(const ByteSpan all, scratch.take(slab.elements() * slab.element_bytes()));
  std::byte* to = all.data();
  for (const ConstByteSpan piece : slab.bytes) to = std::ranges::copy(piece, to).out;
  return ConstByteSpan(all);
}

Result<void> encode_whole(const SlabMemory& weights, const SlabMemory& base, Scratch& scratch,
                          std::vector<std::byte>& to) {
  BITSNAP_ASSIGN(const ConstByteSpan data, join_pieces(weights, scratch));
  BITSNAP_ASSIGN(const ConstByteSpan from, join_pieces(base, scratch));
  BITSNAP_ASSIGN(const CodedElements coded, encode_elements(weights.dtype, data, from, scratch));
  to.push_back(static_cast<std::byte>(SlabMethod::whole));
  put_coded(coded, to);
  to.insert(to.end(), coded.payload.begin(), coded.payload.end());
  return {};
}

// The lists of one class, or of the farther elements.
struct List {
  std::span<const std::uint32_t> numbers;
  entropy::RiceChoice choice;
  unsigned width = kGapWidth;
};

List make_list(std::span<const std::uint32_t> numbers, unsigned width) noexcept {
  return {.numbers = numbers, .choice = entropy::choose_rice(numbers, width), .width = width};
}

// Encodes the changes of a slab of elements that have exponents. The buffers lie in the scratch of the caller's frame.
template <typename Element>
class ChangesEncoder {
 public:
  ChangesEncoder(const SlabMemory& weights, const SlabMemory& base, std::span<const std::uint64_t> changed,
                 std::size_t changes, Scratch& scratch) noexcept
      : weights_(weights),
        base_(base),
        changed_(changed),
        changes_(changes),
        scratch_(scratch),
        geometry_(codec::geometry_of(weights.dtype)) {}

  Result<void> encode(std::vector<std::byte>& to) {
    BITSNAP_TRY(count_exponents());
    const std::uint32_t exponents = exponents_of(geometry_);
    std::uint64_t most_dense = kMostDense;
    for (;;) {
      const Scratch::Frame frame(scratch_);
      choice_ = choose_classes(counts_, exponents, most_dense);
      BITSNAP_TRY(rank());
      // The estimate was too low: half as many.
      if (dense_elements_ <= kMostWholeElements) return write(to);
      most_dense /= 2;
    }
  }

 private:
  [[nodiscard]] unsigned exponent_of(Element element) const noexcept {
    return static_cast<unsigned>(element >> geometry_.mantissa_bits) & geometry_.exponent_mask;
  }
  [[nodiscard]] static std::int64_t delta_of(Element element, Element base) noexcept {
    constexpr auto kSign = static_cast<Element>(Element{1} << (8 * sizeof(Element) - 1));
    const auto reflect = [](Element own) {
      return static_cast<Element>((own & kSign) != 0 ? own ^ static_cast<Element>(~kSign) : own);
    };
    return static_cast<std::make_signed_t<Element>>(static_cast<Element>(reflect(element) - reflect(base)));
  }

  // The elements with a bit in `words`, of both versions, without gaps.
  struct Gathered {
    std::span<const Element> weights;
    std::span<const Element> base;
  };
  Result<Gathered> gather(std::span<const std::uint64_t> words, std::size_t count) {
    BITSNAP_ASSIGN(const std::span<Element> weights, scratch_.take_array<Element>(count));
    BITSNAP_ASSIGN(const std::span<Element> base, scratch_.take_array<Element>(count));
    BITSNAP_ASSIGN(const std::span<std::uint32_t> places, scratch_.take_array<std::uint32_t>(count + kWordElements));
    const SlabKernels& kernel = kernels<SlabKernels>();
    const auto& take = *kernel.take[kernel_index(base_.dtype)];
    std::size_t at = 0;
    for (std::size_t p = 0; p < base_.pieces.size(); ++p) {
      const std::size_t size = divide_up<std::size_t>(base_.pieces[p].elements, kWordElements);
      const std::size_t own = kernel.list(words.data() + first_word(base_.pieces[p]), size, 0, places.data());
      take(as_u8(weights_.bytes[p]), places.data(), own, 0, reinterpret_cast<std::uint8_t*>(weights.data() + at));
      take(as_u8(base_.bytes[p]), places.data(), own, 0, reinterpret_cast<std::uint8_t*>(base.data() + at));
      at += own;
    }
    return Gathered{.weights = weights, .base = base};
  }

  Result<void> count_exponents() {
    BITSNAP_ASSIGN(gathered_, gather(changed_, changes_));
    for (std::size_t i = 0; i < changes_; ++i) {
      const unsigned exponent = exponent_of(gathered_.base[i]);
      ++counts_.changed[exponent];
      // A change of one ULP gives 0 or 2.
      counts_.farther[exponent] +=
          static_cast<std::uint64_t>(delta_of(gathered_.weights[i], gathered_.base[i]) + 1) > 2;
    }
    count_elements();
    return {};
  }

  void count_elements() noexcept {
    const std::size_t every = std::max<std::size_t>(1, base_.words() / kCountedGroups);
    std::uint64_t counted = 0;
    for (std::size_t p = 0; p < base_.pieces.size(); ++p) {
      const std::size_t first = first_word(base_.pieces[p]);
      const std::size_t elements = base_.pieces[p].elements;
      for (std::size_t w = (every - first % every) % every; w * kWordElements < elements; w += every) {
        const std::size_t end = std::min(elements, (w + 1) * kWordElements);
        for (std::size_t i = w * kWordElements; i < end; ++i) {
          ++counts_.elements[exponent_of(element_at<Element>(base_.bytes[p], i))];
        }
        counted += end - w * kWordElements;
      }
    }
    const std::uint64_t all = base_.elements();
    for (std::size_t e = 0; e < kMostExponents; ++e) {
      const std::uint64_t scaled = counted == 0 ? 0 : counts_.elements[e] * all / counted;
      counts_.elements[e] = std::max(static_cast<std::uint32_t>(scaled), counts_.changed[e]);
    }
  }

  // How many elements of a class have changed.
  [[nodiscard]] std::size_t listed_of(std::size_t c) const noexcept {
    return std::accumulate(counts_.changed.begin() + choice_.first[c], counts_.changed.begin() + choice_.first[c + 1],
                           std::size_t{0});
  }

  // Finds the dense elements, and the changed ones of each class.
  Result<void> rank() {
    SlabClasses classes;
    classes.classes = choice_.classes;
    for (std::size_t i = 0; i <= choice_.classes; ++i) {
      classes.limits[i] = choice_.first[i] << geometry_.mantissa_bits;
    }
    dense_elements_ = 0;
    dense_changes_ = 0;
    const std::size_t words = base_.words();
    BITSNAP_ASSIGN(dense_, scratch_.take_array<std::uint64_t>(words));
    std::ranges::fill(dense_, std::uint64_t{0});
    for (std::size_t c = 0; c < choice_.classes; ++c) {
      BITSNAP_ASSIGN(const std::span<std::uint32_t> own, scratch_.take_array<std::uint32_t>(listed_of(c)));
      ranks_[c] = {.ranks = own.data(), .count = 0, .next = 0, .passed = 0};
    }
    for (std::size_t p = 0; p < base_.pieces.size(); ++p) {
      const std::size_t first = first_word(base_.pieces[p]);
      const SlabKernels::Ranked ranked = kernels<SlabKernels>().rank[kernel_index(base_.dtype)](
          as_u8(base_.bytes[p]), base_.pieces[p].elements, classes, changed_.data() + first, dense_.data() + first,
          ranks_.data());
      dense_elements_ += ranked.dense;
      dense_changes_ += ranked.dense_changed;
    }
    return {};
  }

  Result<void> write(std::vector<std::byte>& to) {
    BITSNAP_TRY(encode_dense());
    list_gaps();
    BITSNAP_TRY(list_moves());
    to.push_back(static_cast<std::byte>(SlabMethod::changes));
    to.push_back(static_cast<std::byte>(choice_.classes));
    for (std::size_t i = 0; i <= choice_.classes; ++i) {
      // The last limit is above an exponent, unless it is the only one.
      to.push_back(static_cast<std::byte>(choice_.first[i] - (i > 0 && i == choice_.classes ? 1 : 0)));
    }
    for (std::size_t c = 0; c < choice_.classes; ++c) {
      put_number(to, gaps_[c].numbers.size());
      to.push_back(static_cast<std::byte>(gaps_[c].choice.parameter));
    }
    put_number(to, farther_.numbers.size());
    if (!farther_.numbers.empty()) {
      to.push_back(static_cast<std::byte>(farther_.choice.parameter));
      to.push_back(static_cast<std::byte>(distances_.choice.parameter));
    }
    put_number(to, dense_changes_ == 0 ? 0 : coded_.payload.size());
    if (dense_changes_ > 0) {
      put_coded(coded_, to);
      to.insert(to.end(), coded_.payload.begin(), coded_.payload.end());
    }
    write_bits(to);
    return {};
  }

  Result<void> encode_dense() {
    if (dense_changes_ == 0) return {};
    BITSNAP_ASSIGN(const Gathered dense, gather(dense_, dense_elements_));
    BITSNAP_ASSIGN(coded_,
                   encode_elements(base_.dtype, std::as_bytes(dense.weights), std::as_bytes(dense.base), scratch_));
    return {};
  }

  // Turns the ranks of each class into the gaps between them.
  void list_gaps() noexcept {
    for (std::size_t c = 0; c < choice_.classes; ++c) {
      const std::span<std::uint32_t> own(ranks_[c].ranks, ranks_[c].count);
      for (std::size_t i = own.size(); i-- > 1;) own[i] -= own[i - 1] + 1;
      gaps_[c] = make_list(own, kGapWidth);
    }
  }

  // Signs, and how far what moved farther did.
  Result<void> list_moves() {
    const std::size_t moves = changes_ - dense_changes_;
    BITSNAP_ASSIGN(signs_, scratch_.take_array<std::uint8_t>(moves + 1));
    BITSNAP_ASSIGN(const std::span<std::uint32_t> gaps, scratch_.take_array<std::uint32_t>(moves));
    BITSNAP_ASSIGN(const std::span<std::uint32_t> distances, scratch_.take_array<std::uint32_t>(moves));
    std::size_t expected = 0;
    std::size_t farther = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < changes_; ++i) {
      const std::int64_t delta = delta_of(gathered_.weights[i], gathered_.base[i]);
      const bool is_listed = exponent_of(gathered_.base[i]) >= choice_.first[0];
      signs_[at] = delta < 0 ? 1 : 0;
      if (is_listed && static_cast<std::uint64_t>(delta + 1) > 2) {
        gaps[farther] = static_cast<std::uint32_t>(at - expected);
        distances[farther++] = static_cast<std::uint32_t>((delta < 0 ? -delta : delta) - 2);
        expected = at + 1;
      }
      at += is_listed ? 1U : 0U;
    }
    signs_ = signs_.first(moves);
    farther_ = make_list(gaps.first(farther), kGapWidth);
    distances_ = make_list(distances.first(farther), 8 * sizeof(Element));
    return {};
  }

  void write_bits(std::vector<std::byte>& to) const {
    std::uint64_t bits = signs_.size() + farther_.choice.bits + distances_.choice.bits;
    for (std::size_t c = 0; c < choice_.classes; ++c) bits += gaps_[c].choice.bits;
    const std::size_t begin = to.size();
    const auto bytes = static_cast<std::size_t>(divide_up<std::uint64_t>(bits, 8));
    to.resize(begin + bytes + entropy::kRiceWritableBehind);
    entropy::RiceWriter writer(to.data() + begin);
    const auto put = [&](const List& list) {
      for (const std::uint32_t number : list.numbers) writer.put(number, list.choice.parameter, list.width);
    };
    for (std::size_t c = 0; c < choice_.classes; ++c) put(gaps_[c]);
    for (std::size_t i = 0; i < signs_.size(); i += kSignsAtOnce) {
      const auto count = static_cast<unsigned>(std::min(kSignsAtOnce, signs_.size() - i));
      std::uint64_t together = 0;
      for (unsigned k = 0; k < count; ++k) together |= std::uint64_t{signs_[i + k]} << k;
      writer.put_bits(together, count);
    }
    put(farther_);
    put(distances_);
    to.resize(begin + bytes);
  }

  const SlabMemory& weights_;
  const SlabMemory& base_;
  const std::span<const std::uint64_t> changed_;
  const std::size_t changes_;
  Scratch& scratch_;
  const codec::DeltaGeometry geometry_;
  Gathered gathered_;  // all changed elements
  ExponentCounts counts_;
  ClassChoice choice_;
  std::span<std::uint64_t> dense_;
  std::array<ClassRanks, kMaxClasses> ranks_{};
  std::size_t dense_elements_ = 0;
  std::size_t dense_changes_ = 0;
  CodedElements coded_;
  std::array<List, kMaxClasses> gaps_{};
  std::span<std::uint8_t> signs_;
  List farther_;
  List distances_;
};

// Compares and hashes the slab block by block, so that each block is read from memory once.
struct Compared {
  std::size_t changes = 0;
  std::uint64_t expected = 0;
  std::uint64_t result = 0;
};

Compared compare(const SlabMemory& weights, const SlabMemory& base, std::span<std::uint64_t> changed) {
  SlabHasher expected;
  SlabHasher result;
  Compared compared;
  const std::size_t bytes = base.element_bytes();
  for (std::size_t p = 0; p < base.pieces.size(); ++p) {
    const std::size_t first = first_word(base.pieces[p]);
    for (std::size_t at = 0; at < base.bytes[p].size(); at += kHashBlockBytes) {
      const std::size_t size = std::min(kHashBlockBytes, base.bytes[p].size() - at);
      const ConstByteSpan own = weights.bytes[p].subspan(at, size);
      const ConstByteSpan from = base.bytes[p].subspan(at, size);
      std::size_t changes = 0;
      if (codec::has_deltas(base.dtype)) {
        std::uint64_t* const words = changed.data() + first + at / bytes / kWordElements;
        changes = kernels<SlabKernels>().differ[kernel_index(base.dtype)](as_u8(own), as_u8(from), size / bytes, words);
      } else {
        changes = std::ranges::equal(own, from) ? 0 : 1;
      }
      compared.changes += changes;
      expected.add(from);
      result.add(changes == 0 ? from : own);
    }
  }
  compared.expected = expected.digest();
  compared.result = compared.changes == 0 ? compared.expected : result.digest();
  return compared;
}

template <typename Element>
Result<void> encode_changes(const SlabMemory& weights, const SlabMemory& base, std::span<const std::uint64_t> changed,
                            std::size_t changes, Scratch& scratch, std::vector<std::byte>& to) {
  return ChangesEncoder<Element>(weights, base, changed, changes, scratch).encode(to);
}

}  // namespace

Result<void> encode_slab(const SlabMemory& weights, const SlabMemory& base, Scratch& scratch, EncodedSlab& to) {
  const Scratch::Frame frame(scratch);
  to.payload.clear();
  BITSNAP_ASSIGN(const std::span<std::uint64_t> changed, scratch.take_array<std::uint64_t>(base.words()));
  std::ranges::fill(changed, std::uint64_t{0});
  const Compared compared = compare(weights, base, changed);
  to.expected = compared.expected;
  to.result = compared.result;
  if (compared.changes == 0) return {};
  const std::size_t elements = base.elements();
  const bool is_whole =
      !codec::has_deltas(base.dtype) || (compared.changes > elements / 4 && elements <= kMostWholeElements);
  if (is_whole) return encode_whole(weights, base, scratch, to.payload);
  switch (base.element_bytes()) {
    case 1: return encode_changes<std::uint8_t>(weights, base, changed, compared.changes, scratch, to.payload);
    case 2: return encode_changes<std::uint16_t>(weights, base, changed, compared.changes, scratch, to.payload);
    default: return encode_changes<std::uint32_t>(weights, base, changed, compared.changes, scratch, to.payload);
  }
}

unsigned choose_slab_bits(DType dtype, const SampledChanges& sample) noexcept {
  if (!codec::has_deltas(dtype) || sample.most_of_1024 > 256) return kLeastSlabBits;
  // The fewer changes, the larger the slabs, so that their headers and tables stay small beside what they describe.
  struct Step {
    std::uint64_t one_in;
    unsigned slab_bits;
  };
  for (const Step step : {Step{20, 20}, Step{200, 21}, Step{2'000, 22}}) {
    if (sample.changed * step.one_in >= sample.elements) return step.slab_bits;
  }
  return kMostSlabBits;
}

}  // namespace bitsnap::patch
