// Encodes optimizer_step: the constants that explain a sample, and the ULP distances from the resulting prediction. See
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

// Runs of sampled elements, for three purposes: a quick test whether a step exists at all; fitting the constants, with
// enough equations with one rounding error each to determine them (docs/decisions/0012-optimizer-steps.md compares
// 1,024 with 2,048); and estimating the payload.
constexpr SpreadRuns kFitted{32, 32};
constexpr SpreadRuns kAskedFirst{16, 16};
constexpr SpreadRuns kEstimated{64, 128};

// For smaller chunks the estimate is exact.
constexpr std::size_t kSmallStepChunk = 2 * kEstimated.total();

// The codec gives up if sampled elements differ from the prediction by more bits than this on average, or if the base
// predicts them nearly as well (to within one bit in 64 elements): then ordinal_delta is as small. In between are
// parameters that changed by several steps in the direction of the moment.
constexpr std::size_t kMostBitsAway = 22;
constexpr std::size_t kPerBitNearer = 8;

struct Step {
  StepForm form = StepForm::momentum;
  StepConstants constants = {};
  std::size_t sampled = 0;
  std::size_t bits_away = 0;       // of all sampled elements from the prediction
  std::size_t base_bits_away = 0;  // of the same elements from their base

  [[nodiscard]] bool explains() const noexcept {
    return bits_away < kMostBitsAway * sampled && bits_away + sampled / kPerBitNearer < base_bits_away;
  }
};

// Sampled elements of an input or of the chunk; all of them if there are no more.
Result<std::span<const float>> gather(ConstByteSpan bytes, const SpreadRuns& runs, Scratch& scratch) {
  const std::size_t elements = bytes.size() / sizeof(float);
  const bool is_all = elements <= runs.total();
  BITSNAP_ASSIGN(const std::span<float> floats, scratch.take_array<float>(is_all ? elements : runs.total()));
  if (is_all) {
    std::memcpy(floats.data(), bytes.data(), bytes.size());
    return floats;
  }
  for (std::size_t run = 0; run < runs.count; ++run) {
    const std::size_t first = runs.start(run, elements);
    std::memcpy(floats.data() + run * runs.elements, bytes.data() + first * sizeof(float),
                runs.elements * sizeof(float));
  }
  return floats;
}

// Part of a chunk and its inputs. Valid while its Scratch frame is open.
struct Part {
  std::span<const float> elements;
  std::array<std::span<const float>, 3> beside;
  std::array<Input, 3> all_inputs;
  std::size_t input_count = 0;

  [[nodiscard]] std::span<const Input> inputs() const noexcept { return std::span(all_inputs).first(input_count); }
};

Result<Part> take_part(ConstByteSpan data, const EncodeContext& context, const SpreadRuns& runs, Scratch& scratch) {
  Part part;
  BITSNAP_ASSIGN(part.elements, gather(data, runs, scratch));
  for (const Input& input : context.inputs) {
    auto& beside = part.beside[part.input_count];
    BITSNAP_ASSIGN(beside, gather(input.bytes, runs, scratch));
    part.all_inputs[part.input_count++] = {input.kind, DType::f32, std::as_bytes(beside)};
  }
  return part;
}

// Same as in ordinal_delta.
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

// The form and the constants that predict some elements best.
Result<Step> find_step(ConstByteSpan data, const EncodeContext& context, const SpreadRuns& runs, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const Part part, take_part(data, context, runs, scratch));
  BITSNAP_ASSIGN(const std::span<float> expected, scratch.take_array<float>(part.elements.size()));
  const std::size_t base_away = bits_between(part.elements, part.beside[0]);
  std::optional<Step> best;
  for (const StepForm form : kStepForms) {
    if (!takes_inputs(form, part.inputs())) continue;
    const FloatMode mode;
    const SampledStep sampled{part.elements, part.beside[0], part.beside[1], part.beside[2]};
    BITSNAP_ASSIGN(const LikelyConstants likely, fit_step(form, sampled, scratch));
    for (const StepConstants& constants : likely) {
      predict_step(form, part.inputs(), constants, std::as_writable_bytes(expected));
      const std::size_t away = bits_between(part.elements, expected);
      if (!best || away < best->bits_away) best = Step{form, constants, part.elements.size(), away, base_away};
    }
  }
  return *best;
}

class FoundStep final : public Analysis {
 public:
  explicit FoundStep(const Step& step) : step_(step) {}
  [[nodiscard]] const Step& step() const noexcept { return step_; }

 private:
  Step step_;
};

class OptimizerStepEncoder final : public Encoder {
 public:
  OptimizerStepEncoder() noexcept : Encoder(optimizer_step_decoder()) {}

  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return kOptimizerStepHeaderBytes + ordinal_delta_encoder().max_encoded_size(dtype, elements);
  }

  bool analyzes_whole_chunks(DType) const noexcept override { return true; }

  Result<std::optional<Estimate>> analyze(ConstByteSpan data, const EncodeContext& context, std::size_t elements,
                                          Scratch& scratch) const override {
    if (context.elements == elements && elements <= kSmallStepChunk) {
      return Encoder::analyze(data, context, elements, scratch);
    }
    BITSNAP_ASSIGN(const Step asked, find_step(data, context, kAskedFirst, scratch));
    if (!asked.explains()) return std::nullopt;
    BITSNAP_ASSIGN(const Step step, find_step(data, context, kFitted, scratch));
    if (!step.explains()) return std::nullopt;
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const Part part, take_part(data, context, kEstimated, scratch));
    EncodeContext sampled = context;
    sampled.elements = part.elements.size();
    sampled.inputs = part.inputs();
    BITSNAP_ASSIGN(const Input base, expected_of(step, sampled, scratch));
    const EncodeContext beside{{sampled.dtype, sampled.elements, {&base, 1}}};
    BITSNAP_ASSIGN(auto estimate,
                   ordinal_delta_encoder().analyze(std::as_bytes(part.elements), beside, elements, scratch));
    if (!estimate) return std::nullopt;
    estimate->payload_bytes += kOptimizerStepHeaderBytes;
    estimate->analysis = context.elements == elements ? std::make_shared<const FoundStep>(step) : nullptr;
    return estimate;
  }

  Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext& context, ByteSpan out,
                             Scratch& scratch) const override {
    Step step;
    if (const auto* const found = static_cast<const FoundStep*>(context.analysis)) {
      step = found->step();
    } else {
      BITSNAP_ASSIGN(step, find_step(data, context, kFitted, scratch));
    }
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const Input base, expected_of(step, context, scratch));
    out[0] = static_cast<std::byte>(step.form);
    store_le(out.data() + 1, std::bit_cast<std::uint32_t>(step.constants.keep));
    store_le(out.data() + 5, std::bit_cast<std::uint32_t>(step.constants.step));
    store_le(out.data() + 9, std::bit_cast<std::uint32_t>(step.constants.other));
    const EncodeContext beside{{context.dtype, context.elements, {&base, 1}}};
    BITSNAP_ASSIGN(const std::optional<std::size_t> size,
                   ordinal_delta_encoder().encode(data, beside, out.subspan(kOptimizerStepHeaderBytes), scratch));
    if (!size || kOptimizerStepHeaderBytes + *size >= data.size()) return std::nullopt;
    return kOptimizerStepHeaderBytes + *size;
  }

 private:
  static Result<Input> expected_of(const Step& step, const EncodeContext& context, Scratch& scratch) {
    BITSNAP_ASSIGN(const ByteSpan expected, scratch.take(context.size_bytes()));
    predict_step(step.form, context.inputs, step.constants, expected);
    return Input{.kind = InputKind::base, .dtype = context.dtype, .bytes = expected};
  }
};

}  // namespace

const Encoder& optimizer_step_encoder() noexcept { return only<OptimizerStepEncoder>(); }

}  // namespace bitsnap::codec
