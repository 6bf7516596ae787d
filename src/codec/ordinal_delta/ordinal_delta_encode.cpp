// Codec ordinal_delta, writing: floats as the steps that they moved since their base. spec.md.
#include <algorithm>

#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "codec/ordinal_delta/dense_steps_encode.hpp"
#include "codec/ordinal_delta/measure_steps_encode.hpp"
#include "codec/ordinal_delta/ordinal_delta.hpp"
#include "codec/ordinal_delta/sparse_steps_encode.hpp"
#include "entropy/rice_encode.hpp"

namespace bitsnap::codec {
namespace {

// How many low bytes of a float of four are left as they are, to begin with.
constexpr std::size_t kUsualLowBytes = 1;

// Contexts whose shift leaves at most so many bits of the mantissa above it may be measured directly.
constexpr unsigned kDirectBits = 4;

// Of the elements of a sample, one in so many may be far before more low bytes are tried.
constexpr std::size_t kPerFar = 256;

Result<DensePlan> plan_dense(ConstByteSpan data, ConstByteSpan base, std::size_t elements, std::size_t low_bytes,
                             DType dtype, Scratch& scratch, StepSample& sample) {
  StepGeometry geometry = geometry_of(dtype);
  geometry.low_bytes = low_bytes;
  BITSNAP_ASSIGN(sample, sample_steps(data, base, geometry, scratch));
  // Where steps are larger than that, an element is not far from being measured better without its base. With fewer low
  // bytes than two, direct measures of four bytes would all be far.
  const bool can_be_direct = geometry.element_bytes <= 2 || low_bytes == 2;
  const unsigned least_direct_shift = geometry.mantissa_bits > 8 * low_bytes + kDirectBits
                                          ? static_cast<unsigned>(geometry.mantissa_bits - 8 * low_bytes - kDirectBits)
                                          : 0;
  const entropy::ClassChoice choice = entropy::choose_class_tables(
      {.contexts = sample.contexts,
       .values = sample.values,
       .others = can_be_direct ? std::span<const std::uint16_t>(sample.direct) : std::span<const std::uint16_t>(),
       .least_other_shift = least_direct_shift,
       .elements = elements});
  sample.geometry.first_direct = static_cast<std::uint8_t>(choice.first_other);
  const auto far = static_cast<std::uint64_t>(std::ranges::count(sample.values, kMostSteps));
  const std::uint64_t sample_bits =
      (choice.cost >> entropy::kCostBits) + (geometry.element_bytes > 2 ? far * 8 * geometry.element_bytes : 0);
  return DensePlan{.geometry = sample.geometry,
                   .tables = choice.tables,
                   .payload_bytes = dense_fixed_bytes(choice.tables.classes) + low_bytes * elements +
                                    sample_bits * elements / sample.values.size() / 8};
}

// How a chunk is going to be coded: in the form that a sample says is smaller.
struct Plan {
  DensePlan dense;
  std::optional<SparsePlan> sparse;  // where it is smaller

  [[nodiscard]] std::uint64_t payload_bytes() const noexcept {
    return sparse ? sparse->payload_bytes : dense.payload_bytes;
  }
};

// `data` is a chunk of so many elements, or a sample of it.
Result<Plan> plan_chunk(ConstByteSpan data, const ChunkContext& context, std::size_t elements, Scratch& scratch) {
  const ConstByteSpan base = context.inputs[0].bytes;
  const bool wide = element_size(context.dtype) > 2;
  StepSample sample;
  Plan plan;
  BITSNAP_ASSIGN(plan.dense,
                 plan_dense(data, base, elements, wide ? kUsualLowBytes : 0, context.dtype, scratch, sample));
  const auto count = [&](std::uint16_t value) {
    return static_cast<std::size_t>(std::ranges::count(sample.values, value));
  };
  const bool many_unmoved = count(0) * 8 > sample.values.size() * 3;
  if (wide && (many_unmoved || count(kMostSteps) * kPerFar > sample.values.size())) {
    BITSNAP_ASSIGN(const DensePlan other,
                   plan_dense(data, base, elements, many_unmoved ? 0 : 2, context.dtype, scratch, sample));
    if (other.payload_bytes < plan.dense.payload_bytes) plan.dense = other;
  }
  if (many_unmoved) {
    const SparsePlan sparse = plan_sparse(sample, elements);
    if (sparse.payload_bytes < plan.dense.payload_bytes) plan.sparse = sparse;
  }
  return plan;
}

class OrdinalDeltaEncoder final : public Encoder {
 public:
  const Decoder& decoder() const noexcept override { return ordinal_delta_decoder(); }

  // What is written is smaller than the chunk; but before that is known, something may stand behind it.
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return elements * element_size(dtype) + std::max(kDenseHeaderBytes, entropy::kRiceWritableBehind);
  }

  Result<std::optional<Estimate>> analyze(ConstByteSpan sample, const ChunkContext& sample_context,
                                          std::size_t elements, Scratch& scratch) const override {
    if (sample_context.elements == elements) return Encoder::analyze(sample, sample_context, elements, scratch);
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const Plan plan, plan_chunk(sample, sample_context, elements, scratch));
    if (plan.payload_bytes() >= elements * element_size(sample_context.dtype)) return std::nullopt;
    return Estimate{.payload_bytes = plan.payload_bytes(), .parameters = {}};
  }

  Result<std::optional<std::size_t>> encode(ConstByteSpan data, const ChunkContext& context, ByteSpan out,
                                            Scratch& scratch) const override {
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const Plan plan, plan_chunk(data, context, context.elements, scratch));
    if (plan.payload_bytes() >= data.size()) return std::nullopt;
    if (plan.sparse) return encode_sparse_steps(data, context, *plan.sparse, out, scratch);
    return encode_dense_steps(data, context, plan.dense, out, scratch);
  }
};

}  // namespace

const Encoder& ordinal_delta_encoder() noexcept {
  static const OrdinalDeltaEncoder encoder;
  return encoder;
}

}  // namespace bitsnap::codec
