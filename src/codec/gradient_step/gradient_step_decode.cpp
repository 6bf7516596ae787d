// Decodes gradient_step: decodes the numbers that give the gradients, and adds these to the base. See spec.md.
#include "codec/gradient_step/gradient_step.hpp"

#include <bit>

#include "base/cpu_dispatch.hpp"
#include "base/float_mode.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/payload_checks.hpp"

namespace bitsnap::codec {
namespace {

struct GradientHeader {
  GradientForm form = GradientForm::lerp_fused;
  bool has_exceptions = false;
  GradientNumbers kind = GradientNumbers::bf16;
  const Decoder* coder = nullptr;  // of the numbers
  GradientConstants constants;
  ConstByteSpan numbers;  // their payload
};

Result<float> read_factor(ByteCursor& cursor) {
  BITSNAP_ASSIGN(const auto bits, cursor.read<std::uint32_t>("gradient_step payload: constants"));
  return std::bit_cast<float>(bits);
}

Result<GradientHeader> read_header(ByteCursor& cursor) {
  GradientHeader header;
  BITSNAP_ASSIGN(const auto form, cursor.read<std::uint8_t>("gradient_step payload: form"));
  header.has_exceptions = (form & kGradientExceptions) != 0;
  const unsigned operations = form & ~unsigned{kGradientExceptions};
  if (operations >= kGradientForms) {
    return corrupt("gradient_step payload: form is {}, expected less than {}", operations, kGradientForms);
  }
  header.form = static_cast<GradientForm>(operations);
  BITSNAP_ASSIGN(const auto kind, cursor.read<std::uint8_t>("gradient_step payload: kind of numbers"));
  if (kind > static_cast<std::uint8_t>(GradientNumbers::f32)) {
    return corrupt("gradient_step payload: the kind of numbers is {}, expected 0 or 1", kind);
  }
  header.kind = static_cast<GradientNumbers>(kind);
  BITSNAP_ASSIGN(const auto coder, cursor.read<std::uint8_t>("gradient_step payload: codec of numbers"));
  for (const Decoder* const known : {&float_split_decoder(), &factored_split_decoder()}) {
    if (static_cast<std::uint8_t>(known->id()) == coder) header.coder = known;
  }
  if (header.coder == nullptr) {
    return corrupt("gradient_step payload: the codec of the numbers is {}, expected float_split or factored_split",
                   coder);
  }
  BITSNAP_ASSIGN(header.constants.keep, read_factor(cursor));
  BITSNAP_ASSIGN(header.constants.gain, read_factor(cursor));
  BITSNAP_ASSIGN(header.constants.scale, read_factor(cursor));
  BITSNAP_ASSIGN(const auto size, cursor.read<std::uint32_t>("gradient_step payload: size of the numbers"));
  BITSNAP_ASSIGN(header.numbers, cursor.take(size, "gradient_step payload: numbers"));
  return header;
}

class GradientStepDecoder final : public Decoder {
 public:
  GradientStepDecoder() noexcept
      : Decoder(CodecId::gradient_step, "gradient_step",
                "moments one step later: the gradient of few significant bits that was added") {}
  bool accepts(DType dtype, std::span<const Input> inputs) const noexcept override {
    return dtype == DType::f32 && is_one_base(dtype, inputs);
  }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out,
                      Scratch& scratch) const override {
    ByteCursor cursor(payload);
    BITSNAP_ASSIGN(const GradientHeader header, read_header(cursor));
    const ConstByteSpan others = payload.subspan(cursor.offset());
    const Scratch::Frame frame(scratch);
    const ChunkContext of_numbers{.dtype = dtype_of(header.kind), .elements = context.elements};
    BITSNAP_ASSIGN(const ByteSpan numbers, scratch.take(of_numbers.size_bytes()));
    BITSNAP_TRY(header.coder->decode(header.numbers, of_numbers, numbers, scratch));
    const ConstByteSpan base = context.inputs[0].bytes;
    if (!header.has_exceptions) {
      BITSNAP_TRY(check_payload_size("gradient_step", payload.size(), cursor.offset()));
      add_gradient(header.form, header.constants, base, header.kind, numbers, out);
      return {};
    }
    BITSNAP_ASSIGN(const ByteSpan expected, scratch.take(out.size()));
    add_gradient(header.form, header.constants, base, header.kind, numbers, expected);
    const Input beside{.kind = InputKind::base, .dtype = context.dtype, .bytes = expected};
    return ordinal_delta_decoder().decode(others, {context.dtype, context.elements, {&beside, 1}}, out, scratch);
  }
};

}  // namespace

void add_gradient(GradientForm form, const GradientConstants& constants, ConstByteSpan base, GradientNumbers kind,
                  ConstByteSpan numbers, ByteSpan out) noexcept {
  const FloatMode mode;
  const auto& kernel = kernels<GradientStepKernels>();
  const auto add = kind == GradientNumbers::bf16 ? kernel.add_bf16 : kernel.add_f32;
  add(form, as_u8(base), as_u8(numbers), out.size() / sizeof(float), constants,
      reinterpret_cast<std::uint8_t*>(out.data()));
}

const Decoder& gradient_step_decoder() noexcept { return only<GradientStepDecoder>(); }

}  // namespace bitsnap::codec
