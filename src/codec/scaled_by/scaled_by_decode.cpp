// Decodes scaled_by: first moments as multiples of a fraction of their update. See spec.md. Works part by part so that
// values stay in the cache, and inserts the exceptions after each part.
#include "codec/scaled_by/scaled_by.hpp"

#include <algorithm>
#include <cstring>

#include "base/cpu_dispatch.hpp"
#include "base/float_mode.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/payload_checks.hpp"
#include "codec/plane_groups.hpp"

namespace bitsnap::codec {
namespace {

struct ScaledHeader {
  bool has_planes = false;
  LatticeScale scale;
  std::uint8_t share = 0;
  ConstByteSpan exceptions;
};

Result<float> read_number(ByteCursor& cursor, const char* what) {
  BITSNAP_ASSIGN(const auto bits, cursor.read<std::uint32_t>(what));
  return std::bit_cast<float>(bits);
}

Result<ScaledHeader> read_header(ByteCursor& cursor, bool has_base) {
  ScaledHeader header;
  BITSNAP_ASSIGN(const auto form, cursor.read<std::uint8_t>("scaled_by payload: form"));
  const unsigned from_base = has_base ? kScaledFromBase : 0;
  if ((form & ~unsigned{kScaledPlanes}) != from_base) {
    return corrupt("scaled_by payload: form is {}, expected {} or {} for the inputs of this chunk", form, from_base,
                   from_base | kScaledPlanes);
  }
  header.has_planes = (form & kScaledPlanes) != 0;
  BITSNAP_ASSIGN(header.scale.a, read_number(cursor, "scaled_by payload: a"));
  BITSNAP_ASSIGN(header.scale.b, read_number(cursor, "scaled_by payload: b"));
  if (!is_lattice_scale(header.scale)) {
    return corrupt("scaled_by payload: a and b have the bits {} and {}, expected finite numbers without a sign",
                   std::bit_cast<std::uint32_t>(header.scale.a), std::bit_cast<std::uint32_t>(header.scale.b));
  }
  if (has_base) {
    BITSNAP_ASSIGN(header.share, cursor.read<std::uint8_t>("scaled_by payload: share of the base"));
  }
  BITSNAP_ASSIGN(const auto count, cursor.read<std::uint32_t>("scaled_by payload: number of exceptions"));
  BITSNAP_ASSIGN(header.exceptions,
                 cursor.take(std::uint64_t{count} * sizeof(std::uint32_t), "scaled_by payload: exceptions"));
  return header;
}

// Restores elements from values, in order.
class Placing {
 public:
  Placing(const ScaledHeader& header, std::span<const Input> inputs, ByteSpan out) noexcept
      : header_(header), inputs_(inputs), expected_(inputs, header.scale, header.share), out_(out) {}

  // Restores `count` elements from `first` on; `room` holds as many integers.
  void put(std::size_t first, std::size_t count, const std::uint16_t* values, std::int16_t* room) noexcept {
    std::byte* const to = out_.data() + first * sizeof(float);
    // Nearly all parts have no exceptions.
    if (!place(first, count, values, room)) return;
    for (std::size_t i = 0; i < count; ++i) {
      if (values[i] != kOffLattice) continue;
      if (used_ < header_.exceptions.size()) {
        std::memcpy(to + i * sizeof(float), header_.exceptions.data() + used_, sizeof(float));
      }
      used_ += sizeof(float);
    }
  }

  // corrupt unless every exception was used.
  [[nodiscard]] Result<void> check_end() const {
    if (used_ == header_.exceptions.size()) return {};
    return corrupt("scaled_by payload: {} exceptions in the values, expected {}", used_ / sizeof(float),
                   header_.exceptions.size() / sizeof(float));
  }

 private:
  // Restores the multiples; returns whether there are exceptions.
  bool place(std::size_t first, std::size_t count, const std::uint16_t* values, std::int16_t* room) noexcept {
    const FloatMode mode;
    expected_.fill(first, count, room);
    return kernels<LatticeKernels>().put_multiples(
        squares_at(inputs_, first), room, values, count, header_.scale,
        reinterpret_cast<std::uint8_t*>(out_.data()) + first * sizeof(float));
  }

  const ScaledHeader& header_;
  std::span<const Input> inputs_;
  ExpectedMultiples expected_;
  ByteSpan out_;
  std::size_t used_ = 0;  // bytes of the exceptions; also counts missing ones
};

Result<void> decode_planes(ConstByteSpan coded, std::size_t elements, Placing& placing, Scratch& scratch) {
  BITSNAP_ASSIGN(const std::span<std::uint16_t> values, scratch.take_array<std::uint16_t>(elements));
  BITSNAP_ASSIGN(const std::span<std::int16_t> room, scratch.take_array<std::int16_t>(kScaledPart));
  BITSNAP_TRY(decode_plane_groups(coded, {.elements = elements, .element_bytes = sizeof(std::uint16_t)},
                                  std::as_writable_bytes(values), scratch));
  for (std::size_t first = 0; first < elements; first += kScaledPart) {
    placing.put(first, std::min(kScaledPart, elements - first), values.data() + first, room.data());
  }
  return {};
}

Result<void> decode_lanes(ConstByteSpan coded, const ChunkContext& context, Placing& placing, Scratch& scratch) {
  entropy::ClassLanesDecoder lanes;
  BITSNAP_TRY(lanes.open(coded));
  BITSNAP_ASSIGN(const std::span<std::uint8_t> contexts, scratch.take_array<std::uint8_t>(kScaledPart));
  BITSNAP_ASSIGN(const std::span<std::uint16_t> values, scratch.take_array<std::uint16_t>(kScaledPart));
  BITSNAP_ASSIGN(const std::span<std::int16_t> room, scratch.take_array<std::int16_t>(kScaledPart));
  std::ranges::fill(contexts, std::uint8_t{0});
  for (std::size_t first = 0; first < context.elements; first += kScaledPart) {
    const std::size_t count = std::min(kScaledPart, context.elements - first);
    entropy::ReadAhead ahead{.group_bytes = entropy::kRansLanes * sizeof(float)};
    if (first + count < context.elements) {
      for (std::size_t i = 0; i < context.inputs.size(); ++i) {
        ahead.streams[i] = context.inputs[i].bytes.data() + (first + kScaledPart) * sizeof(float);
      }
    }
    lanes.decode(contexts.data(), divide_up(count, entropy::kRansRoundElements), values.data(), ahead);
    placing.put(first, count, values.data(), room.data());
  }
  return lanes.check_end();
}

class ScaledByDecoder final : public Decoder {
 public:
  ScaledByDecoder() noexcept
      : Decoder(CodecId::scaled_by, "scaled_by",
                "first moments that are multiples of a fraction of the update, from second moments") {}
  bool accepts(DType dtype, std::span<const Input> inputs) const noexcept override {
    if (dtype != DType::f32 || inputs.empty() || inputs.size() > 2) return false;
    const bool are_floats = std::ranges::all_of(inputs, [](const Input& one) { return one.dtype == DType::f32; });
    const bool has_base = inputs.size() == 1 || inputs[0].kind == InputKind::base;
    return are_floats && has_base && inputs.back().kind == InputKind::peer;
  }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out,
                      Scratch& scratch) const override {
    const Scratch::Frame frame(scratch);
    ByteCursor cursor(payload);
    BITSNAP_ASSIGN(const ScaledHeader header, read_header(cursor, context.inputs.size() > 1));
    const ConstByteSpan coded = payload.subspan(cursor.offset());
    Placing placing(header, context.inputs, out);
    if (header.has_planes) {
      BITSNAP_TRY(decode_planes(coded, context.elements, placing, scratch));
    } else {
      BITSNAP_TRY(decode_lanes(coded, context, placing, scratch));
    }
    return placing.check_end();
  }
};

}  // namespace

void ExpectedMultiples::fill(std::size_t first, std::size_t count, std::int16_t* expected) const noexcept {
  if (inputs_.size() < 2) {
    std::fill_n(expected, count, std::int16_t{0});
    return;
  }
  const auto* const base = reinterpret_cast<const std::uint8_t*>(inputs_[0].bytes.data()) + first * sizeof(float);
  kernels<LatticeKernels>().nearest_multiples(base, squares_at(inputs_, first), count, scale_, share_, expected);
}

const Decoder& scaled_by_decoder() noexcept { return only<ScaledByDecoder>(); }

}  // namespace bitsnap::codec
