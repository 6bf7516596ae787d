// Encodes shortened elements for float_split: spec.md, "Shortened elements". Works group by group so that shortened
// elements stay in the cache; low bits go directly to their place in the payload.
#include "codec/float_split/short_floats_encode.hpp"

#include <algorithm>
#include <array>

#include "base/cpu_dispatch.hpp"
#include "base/spread_runs.hpp"
#include "codec/float_split/float_split.hpp"
#include "codec/short_elements_encode.hpp"
#include "entropy/histogram.hpp"
#include "entropy/rans.hpp"
#include "entropy/split_elements_encode.hpp"

namespace bitsnap::codec {
namespace {

// The sample of low bits.
constexpr SpreadRuns kLowBitRuns{.count = 128, .elements = 16, .alignment = 16};

// Low bits are tested in pieces of this many.
constexpr unsigned kPieceBits = 8;

entropy::SplitShape shape_of(std::size_t elements, const ExponentGeometry& geometry) noexcept {
  return {.elements = elements, .element_bytes = 1, .rotated = false, .beside_bits = geometry.low_bits()};
}

// Whether `bits` low bits, fewer than kPieceBits, look random. Like entropy::looks_flat() for bytes, but stricter,
// because coding few bits can save more.
bool looks_flat(const entropy::Histogram& counts, std::uint64_t sampled, unsigned bits) noexcept {
  if (bits == kPieceBits) return entropy::looks_flat(counts, sampled);
  std::uint64_t squares = 0;
  for (const std::uint32_t count : counts) squares += std::uint64_t{count} * count;
  return (squares - std::min(squares, sampled)) << bits <= sampled * sampled + sampled * sampled / 16;
}

// Whether every piece of the remaining mantissa looks random.
Result<bool> mantissas_look_random(ConstByteSpan data, const ShortFloats& floats, Scratch& scratch) {
  const unsigned bits = floats.mantissa_bits();
  if (bits == 0) return true;
  const Scratch::Frame frame(scratch);
  const std::size_t element_bytes = element_size(floats.dtype);
  const std::size_t elements = data.size() / element_bytes;
  BITSNAP_ASSIGN(const std::span<std::byte> shortened, scratch.take(kLowBitRuns.total() * floats.element_bytes()));
  std::size_t sampled = 0;
  for (std::size_t run = 0; run < kLowBitRuns.count && elements >= kLowBitRuns.total();
       ++run, sampled += kLowBitRuns.elements) {
    const std::size_t first = kLowBitRuns.start(run, elements);
    shorten_elements(data.subspan(first * element_bytes, kLowBitRuns.elements * element_bytes), floats,
                     shortened.data() + sampled * floats.element_bytes());
  }
  const unsigned piece_bits = std::min(bits, kPieceBits);
  for (unsigned above = 0; above < bits; above += piece_bits) {
    const unsigned low = bits - std::min(above + piece_bits, bits);
    entropy::Histogram counts{};
    for (std::size_t i = 0; i < sampled; ++i) {
      const std::byte* const at = shortened.data() + i * floats.element_bytes();
      const std::uint32_t element =
          floats.element_bytes() == 2 ? load_le<std::uint16_t>(at) : load_le<std::uint32_t>(at);
      ++counts[element >> low & ((1U << piece_bits) - 1)];
    }
    if (!looks_flat(counts, sampled, piece_bits)) return false;
  }
  return true;
}

// Splits all elements into exponents and low bits. Returns false if there are too many exceptions.
Result<bool> split_groups(ConstByteSpan data, const ExponentGeometry& geometry, Shortener& shortener,
                          std::uint8_t* exponents, std::uint8_t* packed, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::size_t group_bytes = kGroupElements * geometry.element_bytes;
  const std::size_t row_bytes = kGroupColumns * geometry.element_bytes;
  BITSNAP_ASSIGN(const std::span<std::byte> last, scratch.take(group_bytes));
  const auto split = kernels<ExponentKernels>().split;
  for (std::size_t at = 0; at < data.size(); at += group_bytes) {
    const ConstByteSpan group = data.subspan(at, std::min(group_bytes, data.size() - at));
    const std::byte* from = group.data();
    if (group.size() % row_bytes != 0) {
      std::ranges::fill(last, std::byte{0});
      std::ranges::copy(group, last.begin());
      from = last.data();
    }
    const std::size_t rows = divide_up(group.size(), row_bytes);
    const std::uint32_t left_out =
        split(reinterpret_cast<const std::uint8_t*>(from), rows, geometry, exponents, packed);
    if (!shortener.note(at / geometry.element_bytes, group, left_out)) return false;
    exponents += kGroupElements;
    packed += packed_row_bytes(rows, geometry.low_bits());
  }
  return true;
}

}  // namespace

std::size_t max_short_floats_size(DType dtype, std::size_t elements) noexcept {
  const ExponentGeometry widest{
      .element_bytes = 0, .mantissa_bits = mantissa_bits_of(dtype), .zero_bits = 1, .has_signs = true};
  return max_short_head_bytes(elements) + 1 + packed_low_bytes(elements, widest.low_bits()) +
         entropy::max_split_size(shape_of(elements, widest));
}

Result<PayloadSize> encode_short_floats(ConstByteSpan data, const ShortFloats& floats, bool has_signs, ByteSpan out,
                                        Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const bool suits, mantissas_look_random(data, floats, scratch));
  if (!suits) return std::nullopt;
  const std::size_t element_bytes = element_size(floats.dtype);
  const std::size_t elements = data.size() / element_bytes;
  const ExponentGeometry geometry = exponent_geometry(floats, has_signs);
  BITSNAP_ASSIGN(const std::span<std::uint8_t> exponents, scratch.take_array<std::uint8_t>(elements + kGroupColumns));
  const std::size_t packed_bytes = packed_low_bytes(elements, geometry.low_bits());
  // After the head of a chunk without exceptions; exceptions move it later.
  std::byte* const packed = out.data() + 2;
  Shortener shortener;
  BITSNAP_TRY(shortener.open(floats, elements, scratch));
  BITSNAP_ASSIGN(const bool is_short, split_groups(data, geometry, shortener, exponents.data(),
                                                   reinterpret_cast<std::uint8_t*>(packed), scratch));
  if (!is_short) return std::nullopt;
  const std::size_t before = shortener.head_bytes() + 1 + packed_bytes;
  if (shortener.head_bytes() > 1) std::memmove(out.data() + shortener.head_bytes() + 1, packed, packed_bytes);
  BITSNAP_ASSIGN(const std::optional<std::size_t> size,
                 entropy::encode_split(std::as_bytes(exponents.first(elements)), shape_of(elements, geometry),
                                       out.subspan(before), scratch));
  if (!size || before + *size >= data.size()) return std::nullopt;
  *shortener.write_head(out.data()) = static_cast<std::byte>(has_signs ? 1 : 0);
  return before + *size;
}

Result<PayloadSize> estimate_short_floats(ConstByteSpan sample, const ShortFloats& floats, bool has_signs,
                                          std::size_t elements, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const bool suits, mantissas_look_random(sample, floats, scratch));
  if (!suits) return std::nullopt;
  const std::size_t element_bytes = element_size(floats.dtype);
  const std::size_t sampled = sample.size() / element_bytes;
  const ExponentGeometry geometry = exponent_geometry(floats, has_signs);
  BITSNAP_ASSIGN(const std::span<std::uint8_t> exponents, scratch.take_array<std::uint8_t>(sampled + kGroupColumns));
  BITSNAP_ASSIGN(const std::span<std::uint8_t> packed,
                 scratch.take_array<std::uint8_t>(packed_low_bytes(sampled, geometry.low_bits())));
  Shortener shortener;
  BITSNAP_TRY(shortener.open(floats, sampled, scratch));
  BITSNAP_ASSIGN(const bool is_short,
                 split_groups(sample, geometry, shortener, exponents.data(), packed.data(), scratch));
  if (!is_short) return std::nullopt;
  BITSNAP_ASSIGN(const std::optional<std::size_t> size, entropy::estimate_split(std::as_bytes(exponents.first(sampled)),
                                                                                shape_of(sampled, geometry), scratch));
  if (!size) return std::nullopt;
  const std::size_t coded = *size - std::min(*size, entropy::kRansStateBytes);
  return 2 + (shortener.head_bytes() - 1 + coded) * elements / sampled + entropy::kRansStateBytes +
         packed_low_bytes(elements, geometry.low_bits());
}

}  // namespace bitsnap::codec
