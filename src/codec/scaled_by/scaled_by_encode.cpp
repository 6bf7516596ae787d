// Encodes scaled_by: first moments as multiples of a fraction of their update. See spec.md. EncodeContext::lattice
// states the fraction; chunks without a lattice are left to other codecs.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/cpu_dispatch.hpp"
#include "base/float_mode.hpp"
#include "base/spread_runs.hpp"
#include "base/try.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "codec/plane_groups_encode.hpp"
#include "codec/scaled_by/scaled_by.hpp"
#include "entropy/class_lanes_encode.hpp"
#include "entropy/class_tables_encode.hpp"

namespace bitsnap::codec {
namespace {

// Tables and the share of the base are chosen from evenly spread runs of two or more cache lines.
constexpr SpreadRuns kScaledRuns{.count = 64, .elements = 128, .alignment = 16};

// For smaller chunks the estimate is exact, and planes are tried, because they have no lane states.
constexpr std::size_t kSmallScaledChunk = 2 * kScaledRuns.total();

// A share is fitted to integers in sixteenths.
constexpr float kFittedUnit = 16;

// Measures `count` elements from `first` on; returns whether there are exceptions. `room` holds as many integers.
bool measure(ConstByteSpan data, std::span<const Input> inputs, const LatticeScale& scale, std::uint8_t share,
             std::size_t first, std::size_t count, std::int16_t* room, std::uint16_t* values) noexcept {
  const FloatMode mode;
  ExpectedMultiples(inputs, scale, share).fill(first, count, room);
  return kernels<LatticeKernels>().measure_multiples(as_u8(data) + first * sizeof(float), squares_at(inputs, first),
                                                     room, count, scale, values);
}

// A chunk and its inputs, or a sample of them. Valid while its Scratch frame is open.
struct ScaledChunk {
  ConstByteSpan data;
  std::array<Input, 2> all_inputs;
  std::size_t input_count = 0;

  [[nodiscard]] std::span<const Input> inputs() const noexcept { return std::span(all_inputs).first(input_count); }
  [[nodiscard]] std::size_t elements() const noexcept { return data.size() / sizeof(float); }
};

Result<ConstByteSpan> gather(ConstByteSpan bytes, Scratch& scratch) {
  const std::size_t elements = bytes.size() / sizeof(float);
  if (elements <= kScaledRuns.total()) return bytes;
  constexpr std::size_t kRunBytes = kScaledRuns.elements * sizeof(float);
  BITSNAP_ASSIGN(const ByteSpan gathered, scratch.take(kScaledRuns.count * kRunBytes));
  for (std::size_t run = 0; run < kScaledRuns.count; ++run) {
    const std::size_t first = kScaledRuns.start(run, elements);
    std::memcpy(gathered.data() + run * kRunBytes, bytes.data() + first * sizeof(float), kRunBytes);
  }
  return gathered;
}

Result<ScaledChunk> take_sample(ConstByteSpan data, std::span<const Input> inputs, Scratch& scratch) {
  ScaledChunk sample;
  BITSNAP_ASSIGN(sample.data, gather(data, scratch));
  for (const Input& input : inputs) {
    BITSNAP_ASSIGN(const ConstByteSpan bytes, gather(input.bytes, scratch));
    sample.all_inputs[sample.input_count++] = {input.kind, input.dtype, bytes};
  }
  return sample;
}

// The share of the base's integers that predicts a sample best, by least squares.
Result<std::uint8_t> fit_share(const ScaledChunk& sample, const LatticeScale& scale, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::size_t elements = sample.elements();
  BITSNAP_ASSIGN(const std::span<std::int16_t> own, scratch.take_array<std::int16_t>(elements));
  BITSNAP_ASSIGN(const std::span<std::int16_t> before, scratch.take_array<std::int16_t>(elements));
  {
    const FloatMode mode;
    const std::uint8_t* const squares = squares_at(sample.inputs(), 0);
    kernels<LatticeKernels>().nearest_multiples(as_u8(sample.data), squares, elements, scale, kFittedUnit, own.data());
    kernels<LatticeKernels>().nearest_multiples(as_u8(sample.inputs()[0].bytes), squares, elements, scale, kFittedUnit,
                                                before.data());
  }
  std::int64_t products = 0;
  std::int64_t squares = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    products += std::int64_t{own[i]} * before[i];
    squares += std::int64_t{before[i]} * before[i];
  }
  if (products <= 0) return std::uint8_t{0};
  constexpr auto kUnit = static_cast<std::int64_t>(kScaledShareUnit);
  return static_cast<std::uint8_t>(std::min((products * kUnit + squares / 2) / squares, kUnit - 1));
}

// The tables of a chunk in lanes, and the estimated size.
struct ScaledPlan {
  std::uint8_t share = 0;
  entropy::ClassTables tables;
  std::uint64_t payload_bytes = 0;
};

// `data` is a chunk of `elements` elements, or a sample of it.
Result<ScaledPlan> plan_chunk(ConstByteSpan data, std::span<const Input> inputs, const LatticeScale& scale,
                              std::size_t elements, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const ScaledChunk sample, take_sample(data, inputs, scratch));
  const std::size_t size = sample.elements();
  ScaledPlan plan;
  if (inputs.size() > 1) {
    BITSNAP_ASSIGN(plan.share, fit_share(sample, scale, scratch));
  }
  BITSNAP_ASSIGN(const std::span<std::int16_t> room, scratch.take_array<std::int16_t>(size));
  BITSNAP_ASSIGN(const std::span<std::uint16_t> values, scratch.take_array<std::uint16_t>(size));
  BITSNAP_ASSIGN(const std::span<std::uint8_t> contexts, scratch.take_array<std::uint8_t>(size));
  std::ranges::fill(contexts, std::uint8_t{0});
  static_cast<void>(measure(sample.data, sample.inputs(), scale, plan.share, 0, size, room.data(), values.data()));
  const entropy::ClassChoice choice =
      entropy::choose_class_tables({.contexts = contexts, .values = values, .others = {}, .elements = elements});
  plan.tables = choice.tables;
  const auto exceptions = static_cast<std::uint64_t>(std::ranges::count(values, kOffLattice));
  const std::uint64_t sample_bits = (choice.cost >> entropy::kCostBits) + exceptions * 8 * sizeof(float);
  plan.payload_bytes = scaled_header_bytes(inputs.size() > 1) + entropy::class_tables_size(choice.tables.classes) +
                       (entropy::kRansGroups + 3) * sizeof(std::uint32_t) + entropy::kRansStateBytes +
                       sample_bits * elements / size / 8;
  return plan;
}

class PlannedMultiples final : public Analysis {
 public:
  explicit PlannedMultiples(const ScaledPlan& plan) : plan_(plan) {}
  [[nodiscard]] const ScaledPlan& plan() const noexcept { return plan_; }

 private:
  ScaledPlan plan_;
};

// The exceptions of a chunk, found from the last to the first.
class Exceptions {
 public:
  Result<void> open(std::size_t chunk_bytes, Scratch& scratch) {
    BITSNAP_ASSIGN(room_, scratch.take(chunk_bytes));
    at_ = room_.size();
    return {};
  }

  // Keeps the exceptions among `count` elements, which precede the previously given ones.
  void keep(const std::byte* elements, const std::uint16_t* values, std::size_t count) noexcept {
    for (std::size_t i = count; i-- > 0;) {
      if (values[i] != kOffLattice) continue;
      at_ -= sizeof(float);
      std::memcpy(room_.data() + at_, elements + i * sizeof(float), sizeof(float));
    }
  }

  [[nodiscard]] ConstByteSpan bytes() const noexcept { return room_.subspan(at_); }

 private:
  ByteSpan room_;
  std::size_t at_ = 0;
};

// Encodes one chunk.
class Writing {
 public:
  Writing(ConstByteSpan data, const EncodeContext& context, const LatticeScale& scale, ByteSpan out) noexcept
      : data_(data), inputs_(context.inputs), elements_(context.elements), scale_(scale), out_(out) {}

  // Values by class. nullopt if the payload is not smaller than `limit`.
  Result<PayloadSize> as_lanes(const ScaledPlan& plan, std::size_t limit, Scratch& scratch) {
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const std::span<std::uint8_t> contexts, scratch.take_array<std::uint8_t>(kScaledPart));
    BITSNAP_ASSIGN(const std::span<std::int16_t> room, scratch.take_array<std::int16_t>(kScaledPart));
    BITSNAP_ASSIGN(const std::span<std::uint16_t> values, scratch.take_array<std::uint16_t>(kScaledPart));
    std::ranges::fill(contexts, std::uint8_t{0});
    Exceptions exceptions;
    BITSNAP_TRY(exceptions.open(data_.size(), scratch));
    entropy::ClassLanesEncoder lanes;
    BITSNAP_TRY(lanes.open(plan.tables, divide_up(elements_, entropy::kRansRoundElements), scratch));
    for (std::size_t part = divide_up(elements_, kScaledPart); part-- > 0;) {
      const std::size_t first = part * kScaledPart;
      const std::size_t count = std::min(kScaledPart, elements_ - first);
      const std::size_t rounds = divide_up(count, entropy::kRansRoundElements);
      if (measure(data_, inputs_, scale_, plan.share, first, count, room.data(), values.data())) {
        exceptions.keep(data_.data() + first * sizeof(float), values.data(), count);
      }
      std::fill(values.data() + count, values.data() + rounds * entropy::kRansRoundElements, lanes.cheapest_value(0));
      entropy::ReadAhead ahead{.group_bytes = entropy::kRansLanes * sizeof(float)};
      if (part > 0) {
        ahead.streams[0] = data_.data() + (first - kScaledPart) * sizeof(float);
        ahead.streams[1] = inputs_.back().bytes.data() + (first - kScaledPart) * sizeof(float);
      }
      lanes.encode(contexts.data(), values.data(), rounds, ahead);
    }
    const std::size_t before = scaled_header_bytes(inputs_.size() > 1) + exceptions.bytes().size();
    const std::size_t size = before + lanes.finish();
    if (size >= limit) return std::nullopt;
    write_front(0, plan.share, exceptions.bytes());
    lanes.write(out_.data() + before);
    return size;
  }

  // Byte planes of all values, for small chunks.
  Result<PayloadSize> as_planes(std::uint8_t share, std::size_t limit, Scratch& scratch) {
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const std::span<std::int16_t> room, scratch.take_array<std::int16_t>(elements_));
    BITSNAP_ASSIGN(const std::span<std::uint16_t> values, scratch.take_array<std::uint16_t>(elements_));
    Exceptions exceptions;
    BITSNAP_TRY(exceptions.open(data_.size(), scratch));
    if (measure(data_, inputs_, scale_, share, 0, elements_, room.data(), values.data())) {
      exceptions.keep(data_.data(), values.data(), elements_);
    }
    const std::size_t before = write_front(kScaledPlanes, share, exceptions.bytes());
    BITSNAP_ASSIGN(
        const std::size_t coded,
        encode_plane_groups(std::as_bytes(values), {.elements = elements_, .element_bytes = sizeof(std::uint16_t)},
                            out_.subspan(before), scratch));
    if (before + coded >= limit) return std::nullopt;
    return before + coded;
  }

 private:
  // Writes the fields before the values; returns their size.
  std::size_t write_front(std::uint8_t form, std::uint8_t share, ConstByteSpan exceptions) noexcept {
    const bool has_base = inputs_.size() > 1;
    std::byte* at = out_.data();
    *at++ = static_cast<std::byte>(form | (has_base ? kScaledFromBase : 0));
    store_le(at, std::bit_cast<std::uint32_t>(scale_.a));
    store_le(at + 4, std::bit_cast<std::uint32_t>(scale_.b));
    at += 8;
    if (has_base) *at++ = static_cast<std::byte>(share);
    store_le(at, static_cast<std::uint32_t>(exceptions.size() / sizeof(float)));
    at += sizeof(std::uint32_t);
    std::ranges::copy(exceptions, at);
    return scaled_header_bytes(has_base) + exceptions.size();
  }

  ConstByteSpan data_;
  std::span<const Input> inputs_;
  std::size_t elements_;
  LatticeScale scale_;
  ByteSpan out_;
};

// nullopt if the context has no lattice.
std::optional<LatticeScale> scale_of(const EncodeContext& context) noexcept {
  if (!context.lattice) return std::nullopt;
  const LatticeScale scale{context.lattice->a, context.lattice->b};
  return is_lattice_scale(scale) ? std::optional(scale) : std::nullopt;
}

class ScaledByEncoder final : public Encoder {
 public:
  ScaledByEncoder() noexcept : Encoder(scaled_by_decoder()) {}

  // The payload is smaller than the chunk, but planes are written after the exceptions before that is known.
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return scaled_header_bytes(true) + elements * element_size(dtype) +
           max_plane_groups_size(elements, sizeof(std::uint16_t));
  }

  bool analyzes_whole_chunks(DType) const noexcept override { return true; }

  Result<std::optional<Estimate>> analyze(ConstByteSpan sample, const EncodeContext& sample_context,
                                          std::size_t elements, Scratch& scratch) const override {
    const bool is_whole = sample_context.elements == elements;
    if (is_whole && elements <= kSmallScaledChunk) return Encoder::analyze(sample, sample_context, elements, scratch);
    const std::optional<LatticeScale> scale = scale_of(sample_context);
    if (!scale) return std::nullopt;
    BITSNAP_ASSIGN(const ScaledPlan plan, plan_chunk(sample, sample_context.inputs, *scale, elements, scratch));
    if (plan.payload_bytes >= elements * sizeof(float)) return std::nullopt;
    Estimate estimate{.payload_bytes = plan.payload_bytes};
    if (is_whole) estimate.analysis = std::make_shared<const PlannedMultiples>(plan);
    return estimate;
  }

  Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext& context, ByteSpan out,
                             Scratch& scratch) const override {
    const std::optional<LatticeScale> scale = scale_of(context);
    if (!scale) return std::nullopt;
    Writing writing(data, context, *scale, out);
    if (const auto* const planned = static_cast<const PlannedMultiples*>(context.analysis)) {
      return writing.as_lanes(planned->plan(), data.size(), scratch);
    }
    BITSNAP_ASSIGN(const ScaledPlan plan, plan_chunk(data, context.inputs, *scale, context.elements, scratch));
    std::optional<std::size_t> planes;
    if (context.elements <= kSmallScaledChunk) {
      BITSNAP_ASSIGN(planes, writing.as_planes(plan.share, data.size(), scratch));
    }
    const std::size_t limit = planes.value_or(data.size());
    if (plan.payload_bytes >= data.size()) return planes;
    BITSNAP_ASSIGN(const std::optional<std::size_t> lanes, writing.as_lanes(plan, limit, scratch));
    return lanes ? lanes : planes;
  }
};

}  // namespace

const Encoder& scaled_by_encoder() noexcept { return only<ScaledByEncoder>(); }

}  // namespace bitsnap::codec
