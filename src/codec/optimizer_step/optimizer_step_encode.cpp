// Codec optimizer_step, writing: constants that explain a sample, and how far elements are from what follows from them.
// spec.md.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/float_mode.hpp"
#include "base/spread_runs.hpp"
#include "base/try.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "codec/optimizer_step/fit_step_encode.hpp"
#include "codec/optimizer_step/optimizer_step.hpp"

namespace bitsnap::codec {
namespace {

// What constants are fitted to: enough for equations as wrong as one rounding each to tell them to one.
constexpr std::size_t kRunElements = 32;
constexpr std::size_t kRuns = 64;
constexpr std::size_t kMostSampled = kRuns * kRunElements;

// Where elements of the sample are on average so many bits away from what is expected, it was no such step.
constexpr std::size_t kMostBitsAway = 14;

struct Step {
  StepForm form = StepForm::momentum;
  StepConstants constants = {};
  std::size_t bits_away = 0;  // of all sampled elements
  std::size_t sampled = 0;

  [[nodiscard]] bool explains() const noexcept { return bits_away < kMostBitsAway * sampled; }
};

// Elements of the sample, from an input or from the chunk.
Result<std::span<const float>> gather(ConstByteSpan bytes, std::size_t elements, Scratch& scratch) {
  const std::size_t sampled = std::min(elements, kMostSampled);
  BITSNAP_ASSIGN(const std::span<float> floats, scratch.take_array<float>(sampled));
  if (sampled == elements) {
    std::memcpy(floats.data(), bytes.data(), bytes.size());
    return floats;
  }
  for (std::size_t run = 0; run < kRuns; ++run) {
    const std::size_t first = spread_run_start(run, kRuns, kRunElements, elements, 1);
    std::memcpy(floats.data() + run * kRunElements, bytes.data() + first * sizeof(float), kRunElements * sizeof(float));
  }
  return floats;
}

// As ordinal_delta counts steps.
std::uint32_t reflected(float element) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(element);
  return (bits >> 31) != 0 ? bits ^ 0x7fffffff : bits;
}

std::size_t bits_between(std::span<const float> elements, std::span<const float> expected) noexcept {
  std::size_t bits = 0;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::uint32_t steps = reflected(elements[i]) - reflected(expected[i]);
    bits += static_cast<std::size_t>(std::bit_width(std::min(steps, std::uint32_t{0} - steps)));
  }
  return bits;
}

// The form and the constants that explain most.
Result<Step> find_step(ConstByteSpan data, const ChunkContext& context, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const std::span<const float> elements, gather(data, context.elements, scratch));
  std::array<std::span<const float>, 3> beside;
  std::array<Input, 3> inputs;
  for (std::size_t i = 0; i < context.inputs.size(); ++i) {
    BITSNAP_ASSIGN(beside[i], gather(context.inputs[i].bytes, context.elements, scratch));
    inputs[i] = {context.inputs[i].kind, DType::f32, std::as_bytes(beside[i])};
  }
  BITSNAP_ASSIGN(const std::span<float> expected, scratch.take_array<float>(elements.size()));
  const std::span<const Input> sampled(inputs.data(), context.inputs.size());
  std::optional<Step> best;
  for (const StepForm form : kStepForms) {
    if (!takes_inputs(form, sampled)) continue;
    const FloatMode mode;
    BITSNAP_ASSIGN(const LikelyConstants likely, fit_step(form, {elements, beside[0], beside[1], beside[2]}, scratch));
    for (const StepConstants& constants : likely) {
      predict_step(form, sampled, constants, std::as_writable_bytes(expected));
      const std::size_t away = bits_between(elements, expected);
      if (!best || away < best->bits_away) best = Step{form, constants, away, elements.size()};
    }
  }
  return *best;
}

class OptimizerStepEncoder final : public Encoder {
 public:
  const Decoder& decoder() const noexcept override { return optimizer_step_decoder(); }

  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return kOptimizerStepHeaderBytes + ordinal_delta_encoder().max_encoded_size(dtype, elements);
  }

  Result<std::optional<Estimate>> analyze(ConstByteSpan sample, const ChunkContext& sample_context,
                                          std::size_t elements, Scratch& scratch) const override {
    if (sample_context.elements == elements) return Encoder::analyze(sample, sample_context, elements, scratch);
    BITSNAP_ASSIGN(const Step step, find_step(sample, sample_context, scratch));
    if (!step.explains()) return std::nullopt;
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const Input base, expected_of(step, sample_context, sample.size(), scratch));
    const ChunkContext beside{sample_context.dtype, sample_context.elements, {&base, 1}, {}};
    BITSNAP_ASSIGN(auto estimate, ordinal_delta_encoder().analyze(sample, beside, elements, scratch));
    if (estimate) estimate->payload_bytes += kOptimizerStepHeaderBytes;
    return estimate;
  }

  Result<std::optional<std::size_t>> encode(ConstByteSpan data, const ChunkContext& context, ByteSpan out,
                                            Scratch& scratch) const override {
    BITSNAP_ASSIGN(const Step step, find_step(data, context, scratch));
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const Input base, expected_of(step, context, data.size(), scratch));
    out[0] = static_cast<std::byte>(step.form);
    store_le(out.data() + 1, std::bit_cast<std::uint32_t>(step.constants.keep));
    store_le(out.data() + 5, std::bit_cast<std::uint32_t>(step.constants.step));
    store_le(out.data() + 9, std::bit_cast<std::uint32_t>(step.constants.other));
    const ChunkContext beside{context.dtype, context.elements, {&base, 1}, {}};
    BITSNAP_ASSIGN(const std::optional<std::size_t> size,
                   ordinal_delta_encoder().encode(data, beside, out.subspan(kOptimizerStepHeaderBytes), scratch));
    if (!size || kOptimizerStepHeaderBytes + *size >= data.size()) return std::nullopt;
    return kOptimizerStepHeaderBytes + *size;
  }

 private:
  static Result<Input> expected_of(const Step& step, const ChunkContext& context, std::size_t size_bytes,
                                   Scratch& scratch) {
    BITSNAP_ASSIGN(const ByteSpan expected, scratch.take(size_bytes));
    predict_step(step.form, context.inputs, step.constants, expected);
    return Input{.kind = InputKind::base, .dtype = context.dtype, .bytes = expected};
  }
};

}  // namespace

const Encoder& optimizer_step_encoder() noexcept {
  static const OptimizerStepEncoder encoder;
  return encoder;
}

}  // namespace bitsnap::codec
