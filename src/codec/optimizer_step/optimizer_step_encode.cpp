// Encodes optimizer_step: the constants that explain a sample, and the ULP distances from the resulting prediction. See
// spec.md.
#include <bit>
#include <optional>

#include "base/float_mode.hpp"
#include "base/spread_runs.hpp"
#include "base/try.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "codec/optimizer_step/fit_rounded_step_encode.hpp"
#include "codec/optimizer_step/fit_step_encode.hpp"
#include "codec/optimizer_step/optimizer_step.hpp"
#include "codec/optimizer_step/step_sample_encode.hpp"

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
// For BF16, most of whose parameters do not move in a step.
constexpr std::size_t kMostShortBitsAway = 6;
constexpr std::size_t kPerShortBitNearer = 256;

// With one bit in this many elements, another form gains nothing worth its time.
constexpr std::size_t kPerBitNearlyExact = 512;

struct Step {
  StepForm form = StepForm::momentum;
  StepConstants constants = {};
  DType dtype = DType::opaque;
  std::size_t sampled = 0;
  std::size_t bits_away = 0;       // of all sampled elements from the prediction
  std::size_t base_bits_away = 0;  // of the same elements from their base

  [[nodiscard]] bool explains() const noexcept {
    if (dtype == DType::f32) {
      return bits_away < kMostBitsAway * sampled && bits_away + sampled / kPerBitNearer < base_bits_away;
    }
    return bits_away < kMostShortBitsAway * sampled && bits_away + sampled / kPerShortBitNearer < base_bits_away;
  }
};

// The form and the constants that predict some F32 elements best.
Result<Step> find_step(ConstByteSpan data, const EncodeContext& context, const SpreadRuns& runs, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const StepSample sample, StepSample::take(data, context, runs, scratch));
  BITSNAP_ASSIGN(const SampledStep floats, sample.floats(scratch));
  BITSNAP_ASSIGN(const StepTrial trial, StepTrial::make(sample, scratch));
  const std::size_t base_away = sample.bits_from_base();
  std::optional<Step> best;
  for (const StepForm form : kStepForms) {
    if (!takes_inputs(form, context.dtype, sample.inputs())) continue;
    const FloatMode mode;
    BITSNAP_ASSIGN(const LikelyConstants likely, fit_step(form, floats, scratch));
    for (const StepConstants& constants : likely) {
      const std::size_t away = trial.bits_away(form, constants);
      if (!best || away < best->bits_away)
        best = Step{form, constants, context.dtype, sample.elements(), away, base_away};
    }
  }
  return *best;
}

// The same for BF16. `start` is what a smaller sample gave.
Result<Step> find_rounded_step(ConstByteSpan data, const EncodeContext& context, const SpreadRuns& runs,
                               const std::optional<Step>& start, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const StepSample sample, StepSample::take(data, context, runs, scratch));
  BITSNAP_ASSIGN(const SampledStep floats, sample.floats(scratch));
  const std::size_t base_away = sample.bits_from_base();
  std::optional<Step> best;
  for (const StepForm form : kStepForms) {
    if (!takes_inputs(form, context.dtype, sample.inputs())) continue;
    if (best && best->bits_away * kPerBitNearlyExact <= best->sampled) break;
    // The constants that fit one form nearly fit the others that take the same inputs.
    const auto constants = best    ? std::optional(best->constants)
                           : start ? std::optional(start->constants)
                                   : std::nullopt;
    const FloatMode mode;
    BITSNAP_ASSIGN(const FittedConstants found, fit_rounded_step(form, sample, floats, constants, scratch));
    if (!best || found.bits_away < best->bits_away)
      best = Step{form, found.constants, context.dtype, sample.elements(), found.bits_away, base_away};
  }
  return *best;
}

// Whether a small sample shows a step at all.
Result<Step> ask_for_step(ConstByteSpan data, const EncodeContext& context, Scratch& scratch) {
  if (context.dtype == DType::f32) return find_step(data, context, kAskedFirst, scratch);
  return find_rounded_step(data, context, kAskedFirst, std::nullopt, scratch);
}

// `asked`: what ask_for_step() returned, if it was called.
Result<Step> fit_whole_step(ConstByteSpan data, const EncodeContext& context, std::optional<Step> asked,
                            Scratch& scratch) {
  if (context.dtype == DType::f32) return find_step(data, context, kFitted, scratch);
  if (!asked) {
    BITSNAP_ASSIGN(asked, ask_for_step(data, context, scratch));
  }
  return find_rounded_step(data, context, kFitted, asked, scratch);
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
    return kMostStepHeaderBytes + ordinal_delta_encoder().max_encoded_size(dtype, elements);
  }

  bool analyzes_whole_chunks(DType) const noexcept override { return true; }

  Result<std::optional<Estimate>> analyze(ConstByteSpan data, const EncodeContext& context, std::size_t elements,
                                          Scratch& scratch) const override {
    if (context.elements == elements && elements <= kSmallStepChunk) {
      return Encoder::analyze(data, context, elements, scratch);
    }
    BITSNAP_ASSIGN(const Step asked, ask_for_step(data, context, scratch));
    if (!asked.explains()) return std::nullopt;
    BITSNAP_ASSIGN(const Step step, fit_whole_step(data, context, asked, scratch));
    if (!step.explains()) return std::nullopt;
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const StepSample sample, StepSample::take(data, context, kEstimated, scratch));
    EncodeContext sampled = context;
    sampled.elements = sample.elements();
    sampled.inputs = sample.inputs();
    BITSNAP_ASSIGN(const Input base, expected_of(step, sampled, scratch));
    const EncodeContext beside{{sampled.dtype, sampled.elements, {&base, 1}}};
    BITSNAP_ASSIGN(auto estimate, ordinal_delta_encoder().analyze(sample.data(), beside, elements, scratch));
    if (!estimate) return std::nullopt;
    estimate->payload_bytes += step_header_bytes(step.form);
    estimate->analysis = context.elements == elements ? std::make_shared<const FoundStep>(step) : nullptr;
    return estimate;
  }

  Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext& context, ByteSpan out,
                             Scratch& scratch) const override {
    Step step;
    if (const auto* const found = static_cast<const FoundStep*>(context.analysis)) {
      step = found->step();
    } else {
      BITSNAP_ASSIGN(step, fit_whole_step(data, context, std::nullopt, scratch));
    }
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const Input base, expected_of(step, context, scratch));
    const std::size_t header_bytes = write_header(step, out);
    const EncodeContext beside{{context.dtype, context.elements, {&base, 1}}};
    BITSNAP_ASSIGN(const std::optional<std::size_t> size,
                   ordinal_delta_encoder().encode(data, beside, out.subspan(header_bytes), scratch));
    if (!size || header_bytes + *size >= data.size()) return std::nullopt;
    return header_bytes + *size;
  }

 private:
  static std::size_t write_header(const Step& step, ByteSpan out) noexcept {
    const auto& [keep, factor, other, divisor] = step.constants;
    out[0] = static_cast<std::byte>(step.form);
    std::size_t at = 1;
    for (const float constant : {keep, factor, other, divisor}) {
      if (at == step_header_bytes(step.form)) break;
      store_le(out.data() + at, std::bit_cast<std::uint32_t>(constant));
      at += sizeof constant;
    }
    return at;
  }

  static Result<Input> expected_of(const Step& step, const EncodeContext& context, Scratch& scratch) {
    BITSNAP_ASSIGN(const ByteSpan expected, scratch.take(context.size_bytes()));
    predict_step(step.form, context.inputs, step.constants, expected);
    return Input{.kind = InputKind::base, .dtype = context.dtype, .bytes = expected};
  }
};

}  // namespace

const Encoder& optimizer_step_encoder() noexcept { return only<OptimizerStepEncoder>(); }

}  // namespace bitsnap::codec
