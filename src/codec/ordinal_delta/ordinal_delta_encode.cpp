// Encodes ordinal_delta: floats as ULP distances from their base. See spec.md.
#include <algorithm>
#include <cstring>

#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "codec/ordinal_delta/dense_deltas_encode.hpp"
#include "codec/ordinal_delta/floor_factor_encode.hpp"
#include "codec/ordinal_delta/measure_deltas_encode.hpp"
#include "codec/ordinal_delta/ordinal_delta.hpp"
#include "codec/ordinal_delta/sparse_deltas_encode.hpp"
#include "codec/short_elements_encode.hpp"
#include "entropy/rice_encode.hpp"

namespace bitsnap::codec {
namespace {

// The low bytes of a four-byte float that are tried first.
constexpr std::size_t kUsualLowBytes = 1;

// Contexts whose shift leaves at most this many mantissa bits above it may be measured directly.
constexpr unsigned kDirectBits = 4;

// If more than one sampled element in this many is far, more low bytes are tried.
constexpr std::size_t kPerFar = 256;

// Octaves must save at least 1 part in this many of the coded bytes; for wide elements, whose coded bytes are only a
// part, the threshold is scaled.
constexpr std::uint64_t kPerNarrowGain = 128;
constexpr std::uint64_t kPerWideGain = 512;

// The estimate of chunks that are not much larger than the sample is exact.
constexpr std::size_t kSmallDeltaChunk = 2 * kDeltaRuns.total();

// Floors must save at least 1 part in this many of the payload, because decoding them is slower.
constexpr std::uint64_t kPerFloorGain = 1024;

std::size_t count_of(const DeltaSample& sample, std::uint16_t value) noexcept {
  return static_cast<std::size_t>(std::ranges::count(sample.values, value));
}

bool has_many_far(const DeltaSample& sample) noexcept {
  return count_of(sample, kMostDeltas) * kPerFar > sample.values.size();
}

// Plans the dense form with `low_bytes` low bytes: measured above the floors of `factor`, or from the base if it is 0.
DensePlan plan_dense(DeltaSample& sample, std::size_t elements, std::size_t low_bytes, std::uint32_t factor = 0) {
  sample.geometry.low_bytes = low_bytes;
  sample.geometry.first_direct = kNoDirect;
  sample.geometry.factor = factor;
  measure_sample(sample);
  const DeltaGeometry& geometry = sample.geometry;
  // If deltas are larger than this, measuring without the base may be better. With fewer than two low bytes, direct
  // measures of four-byte elements would all be far.
  const bool can_be_direct = factor == 0 && (geometry.element_bytes <= 2 || low_bytes == 2);
  if (can_be_direct) measure_sample_directly(sample);
  const unsigned least_direct_shift = geometry.mantissa_bits > 8 * low_bytes + kDirectBits
                                          ? static_cast<unsigned>(geometry.mantissa_bits - 8 * low_bytes - kDirectBits)
                                          : 0;
  const entropy::ClassChoice choice = entropy::choose_class_tables(
      {.contexts = sample.contexts,
       .values = sample.values,
       .others = can_be_direct ? std::span<const std::uint16_t>(sample.direct) : std::span<const std::uint16_t>(),
       .least_other_shift = least_direct_shift,
       .elements = elements,
       .per_octave_gain = geometry.element_bytes > 2 ? kPerWideGain : kPerNarrowGain});
  sample.geometry.first_direct = static_cast<std::uint8_t>(choice.first_other);
  const std::uint64_t far = geometry.element_bytes > 2 ? count_of(sample, kMostDeltas) : 0;
  const std::uint64_t sample_bits = (choice.cost >> entropy::kCostBits) + far * 8 * geometry.element_bytes;
  return DensePlan{.geometry = geometry,
                   .tables = choice.tables,
                   .payload_bytes = dense_fixed_bytes(geometry, choice.tables.classes) + low_bytes * elements +
                                    sample_bits * elements / sample.values.size() / 8};
}

bool is_smaller(const DensePlan& one, const DensePlan& other) noexcept {
  return one.payload_bytes < other.payload_bytes;
}

// The plan above floors, if it is smaller by enough.
std::optional<DensePlan> plan_above_floor(DeltaSample& sample, std::size_t elements, const DensePlan& dense) {
  const std::uint32_t factor = find_floor_factor(sample);
  if (factor == 0) return std::nullopt;
  const std::size_t low_bytes = std::max(dense.geometry.low_bytes, kUsualLowBytes);
  DensePlan best = plan_dense(sample, elements, low_bytes, factor);
  if (low_bytes < 2 && has_many_far(sample)) {
    best = std::min(best, plan_dense(sample, elements, 2, factor), is_smaller);
  }
  if (best.payload_bytes + best.payload_bytes / kPerFloorGain >= dense.payload_bytes) return std::nullopt;
  return best;
}

// The coding of a chunk: the form that a sample predicts to be smaller.
struct Plan {
  ShortFloats floats;
  DensePlan dense;
  std::optional<SparsePlan> sparse;  // set if it is smaller

  [[nodiscard]] std::uint64_t payload_bytes() const noexcept {
    return sparse ? sparse->payload_bytes : dense.payload_bytes;
  }
};

// `data` is a chunk of `elements` elements, or a sample of it.
Result<Plan> plan_floats(ConstByteSpan data, ConstByteSpan base, const ShortFloats& floats, std::size_t elements,
                         Scratch& scratch) {
  const bool wide = floats.element_bytes() > 2;
  BITSNAP_ASSIGN(DeltaSample sample, take_sample(data, base, floats, scratch));
  Plan plan{.floats = floats, .dense = plan_dense(sample, elements, wide ? kUsualLowBytes : 0), .sparse = {}};
  const bool is_wide_and_short = wide && floats.zero_bits > 0;
  if (is_wide_and_short) {
    // They move by few deltas, of which low bytes may say all. Those without any are tried last: they tell what moved.
    if (has_many_far(sample)) plan.dense = std::min(plan.dense, plan_dense(sample, elements, 2), is_smaller);
    plan.dense = std::min(plan.dense, plan_dense(sample, elements, 0), is_smaller);
  }
  const bool many_unmoved = count_of(sample, 0) * 8 > sample.values.size() * 3;
  if (wide && !is_wide_and_short && (many_unmoved || has_many_far(sample))) {
    plan.dense = std::min(plan.dense, plan_dense(sample, elements, many_unmoved ? 0 : 2), is_smaller);
  }
  if (many_unmoved) {
    const SparsePlan sparse = plan_sparse(sample, elements);
    if (sparse.payload_bytes < plan.dense.payload_bytes) plan.sparse = sparse;
  } else if (wide && floats.zero_bits == 0) {
    if (const auto above_floor = plan_above_floor(sample, elements, plan.dense)) plan.dense = *above_floor;
  }
  return plan;
}

// Leaves out low bits if that pays.
Result<Plan> plan_chunk(ConstByteSpan data, const EncodeContext& context, std::size_t elements, Scratch& scratch) {
  const unsigned zero_bits = can_be_shortened(context.dtype) ? choose_zero_bits(data, context.dtype) : 0;
  return plan_floats(data, context.inputs[0].bytes, {.dtype = context.dtype, .zero_bits = zero_bits}, elements,
                     scratch);
}

class PlannedChunk final : public Analysis {
 public:
  explicit PlannedChunk(const Plan& plan) : plan_(plan) {}
  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }

 private:
  Plan plan_;
};

class OrdinalDeltaEncoder final : public Encoder {
 public:
  OrdinalDeltaEncoder() noexcept : Encoder(ordinal_delta_decoder()) {}

  // The payload is smaller than the chunk, but the encoder may write more before it knows that.
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return elements * element_size(dtype) + max_short_head_bytes(elements) +
           std::max(kFloorHeaderBytes, entropy::kRiceWritableBehind);
  }

  bool analyzes_whole_chunks(DType) const noexcept override { return true; }

  Result<std::optional<Estimate>> analyze(ConstByteSpan sample, const EncodeContext& sample_context,
                                          std::size_t elements, Scratch& scratch) const override {
    const bool is_whole = sample_context.elements == elements;
    if (is_whole && elements <= kSmallDeltaChunk) return Encoder::analyze(sample, sample_context, elements, scratch);
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const Plan plan, plan_chunk(sample, sample_context, elements, scratch));
    if (plan.payload_bytes() >= elements * element_size(sample_context.dtype)) return std::nullopt;
    Estimate estimate{.payload_bytes = plan.payload_bytes()};
    if (is_whole) estimate.analysis = std::make_shared<const PlannedChunk>(plan);
    return estimate;
  }

  Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext& context, ByteSpan out,
                             Scratch& scratch) const override {
    const Scratch::Frame frame(scratch);
    if (const auto* const planned = static_cast<const PlannedChunk*>(context.analysis)) {
      return encode_as(planned->plan(), data, context, out, scratch);
    }
    BITSNAP_ASSIGN(const Plan plan, plan_chunk(data, context, context.elements, scratch));
    return encode_as(plan, data, context, out, scratch);
  }

 private:
  static Result<PayloadSize> encode_as(const Plan& plan, ConstByteSpan data, const EncodeContext& context, ByteSpan out,
                                       Scratch& scratch) {
    if (plan.payload_bytes() >= data.size()) return std::nullopt;
    if (plan.floats.zero_bits > 0) return encode_short(plan, data, context, out, scratch);
    DeltasToEncode deltas{.data = data, .base = context.inputs[0].bytes, .floats = plan.floats, .shortener = nullptr};
    return encode_deltas(plan, deltas, out, scratch);
  }

  static Result<PayloadSize> encode_short(const Plan& plan, ConstByteSpan data, const EncodeContext& context,
                                          ByteSpan out, Scratch& scratch) {
    const Scratch::Frame frame(scratch);
    const ConstByteSpan base = context.inputs[0].bytes;
    Shortener shortener;
    BITSNAP_TRY(shortener.open(plan.floats, context.elements, scratch));
    // After the head of a chunk without exceptions; exceptions move it later.
    constexpr std::size_t kLeastHead = 1;
    BITSNAP_ASSIGN(const std::optional<std::size_t> size,
                   encode_deltas(plan, {.data = data, .base = base, .floats = plan.floats, .shortener = &shortener},
                                 out.subspan(kLeastHead), scratch));
    const std::size_t before = shortener.head_bytes();
    if (size && before + *size < data.size()) {
      if (before > kLeastHead) std::memmove(out.data() + before, out.data() + kLeastHead, *size);
      shortener.write_head(out.data());
      return before + *size;
    }
    // Reached if the sample missed something, or if the base does not help.
    BITSNAP_ASSIGN(const Plan whole, plan_floats(data, base, {.dtype = context.dtype}, context.elements, scratch));
    return encode_as(whole, data, context, out, scratch);
  }

  static Result<PayloadSize> encode_deltas(const Plan& plan, const DeltasToEncode& deltas, ByteSpan out,
                                           Scratch& scratch) {
    if (plan.sparse) return encode_sparse_deltas(deltas, *plan.sparse, out, scratch);
    return encode_dense_deltas(deltas, plan.dense, out, scratch);
  }
};

}  // namespace

const Encoder& ordinal_delta_encoder() noexcept { return only<OrdinalDeltaEncoder>(); }

}  // namespace bitsnap::codec
