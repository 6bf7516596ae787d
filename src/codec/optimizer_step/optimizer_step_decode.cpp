// Decodes optimizer_step: computes the optimizer's step on the earlier state and adds the coded ULP distances. See
// spec.md.
#include "codec/optimizer_step/optimizer_step.hpp"

#include <algorithm>
#include <bit>
#include <initializer_list>

#include "base/cpu_dispatch.hpp"
#include "base/float_mode.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/payload_checks.hpp"

namespace bitsnap::codec {
namespace {

Result<float> read_constant(ByteCursor& cursor) {
  BITSNAP_ASSIGN(const auto bits, cursor.read<std::uint32_t>("optimizer_step payload: constants"));
  return std::bit_cast<float>(bits);
}

class OptimizerStepDecoder final : public Decoder {
 public:
  OptimizerStepDecoder() noexcept
      : Decoder(CodecId::optimizer_step, "optimizer_step",
                "parameters and second moments: ULP distances from a recomputed optimizer step") {}
  bool accepts(DType dtype, std::span<const Input> inputs) const noexcept override {
    return std::ranges::any_of(kStepForms, [&](StepForm form) { return takes_inputs(form, dtype, inputs); });
  }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out,
                      Scratch& scratch) const override {
    ByteCursor cursor(payload);
    BITSNAP_ASSIGN(const auto number, cursor.read<std::uint8_t>("optimizer_step payload: form"));
    const auto form = static_cast<StepForm>(number);
    if (!takes_inputs(form, context.dtype, context.inputs)) {
      return corrupt("optimizer_step payload: form is {}, which does not match the dtype and inputs of this chunk",
                     number);
    }
    StepConstants constants;
    BITSNAP_ASSIGN(constants.keep, read_constant(cursor));
    BITSNAP_ASSIGN(constants.step, read_constant(cursor));
    BITSNAP_ASSIGN(constants.other, read_constant(cursor));
    if (form == StepForm::rounded_adam) {
      BITSNAP_ASSIGN(constants.divisor, read_constant(cursor));
    }
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const ByteSpan expected, scratch.take(out.size()));
    predict_step(form, context.inputs, constants, expected);
    const Input base{.kind = InputKind::base, .dtype = context.dtype, .bytes = expected};
    const ChunkContext beside{context.dtype, context.elements, {&base, 1}};
    return ordinal_delta_decoder().decode(payload.subspan(cursor.offset()), beside, out, scratch);
  }
};

}  // namespace

bool takes_inputs(StepForm form, DType dtype, std::span<const Input> inputs) noexcept {
  constexpr auto kBase = InputKind::base;
  constexpr auto kPeer = InputKind::peer;
  if (dtype != DType::f32 && dtype != DType::bf16) return false;
  const auto are = [&](std::initializer_list<InputKind> kinds) {
    return std::ranges::equal(
        inputs, kinds, [&](const Input& input, InputKind kind) { return input.kind == kind && input.dtype == dtype; });
  };
  switch (form) {
    case StepForm::second_moment: return are({kBase, kBase, kPeer});
    case StepForm::adam: return are({kBase, kPeer, kPeer}) || are({kBase, kBase, kBase});
    case StepForm::momentum: return are({kBase, kPeer}) || are({kBase, kBase});
    case StepForm::rounded_second_moment:
      return dtype == DType::bf16 && takes_inputs(StepForm::second_moment, dtype, inputs);
    case StepForm::rounded_adam: return dtype == DType::bf16 && takes_inputs(StepForm::adam, dtype, inputs);
  }
  return false;
}

void predict_step(StepForm form, std::span<const Input> inputs, const StepConstants& constants, ByteSpan out) noexcept {
  const StepInputs from{.base = as_u8(inputs[0].bytes),
                        .first = as_u8(inputs[1].bytes),
                        .second = inputs.size() > 2 ? as_u8(inputs[2].bytes) : nullptr};
  const auto& all = kernels<StepPredictionKernels>();
  const DType dtype = inputs[0].dtype;
  const FloatMode mode;
  const auto predict = dtype == DType::f32 ? all.predict_f32 : all.predict_bf16;
  predict(form, from, out.size() / element_size(dtype), constants, reinterpret_cast<std::uint8_t*>(out.data()));
}

const Decoder& optimizer_step_decoder() noexcept { return only<OptimizerStepDecoder>(); }

}  // namespace bitsnap::codec
