// Decodes gradient_step: decodes the numbers that give the gradients, and adds these to the base. See spec.md.
#include "codec/gradient_step/gradient_step.hpp"

#include <algorithm>
#include <bit>

#include "base/cpu_dispatch.hpp"
#include "base/float_mode.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/gradient_step/gradient_numbers_decode.hpp"
#include "codec/payload_checks.hpp"

namespace bitsnap::codec {
namespace {

struct GradientHeader {
  GradientForm form = GradientForm::lerp_fused;
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
  const unsigned operations = form & ~unsigned{kGradientExceptions};
  if (operations >= kGradientForms) {
    return corrupt("gradient_step payload: form is {}, expected less than {}", operations, kGradientForms);
  }
  header.form = static_cast<GradientForm>(operations);
  BITSNAP_ASSIGN(const auto kind, cursor.read<std::uint8_t>("gradient_step payload: kind of numbers"));
  if (kind > static_cast<std::uint8_t>(GradientNumbers::sums)) {
    return corrupt("gradient_step payload: the kind of numbers is {}, expected 0, 1 or 2", kind);
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

Result<SquareConstants> read_square_header(ByteCursor& cursor) {
  BITSNAP_ASSIGN(const auto form, cursor.read<std::uint8_t>("gradient_step payload: form"));
  const unsigned operations = form & ~unsigned{kGradientExceptions};
  if (operations != kSquareForm) {
    return corrupt("gradient_step payload: form is {}, expected {} for a second moment", operations, kSquareForm);
  }
  SquareConstants constants;
  BITSNAP_ASSIGN(const auto bits, cursor.read<std::uint8_t>("gradient_step payload: significant bits"));
  if (bits == 0 || bits > 24) {
    return corrupt("gradient_step payload: numbers have {} significant bits, expected 1 to 24", bits);
  }
  constants.bits = bits;
  BITSNAP_ASSIGN(constants.keep, read_factor(cursor));
  BITSNAP_ASSIGN(constants.gain, read_factor(cursor));
  BITSNAP_ASSIGN(constants.rate, read_factor(cursor));
  BITSNAP_ASSIGN(constants.scale, read_factor(cursor));
  return constants;
}

// Decodes what follows the first `used` bytes of the payload: nothing, or exceptions from the elements that `add`
// writes.
template <typename Add>
Result<void> decode_around(ConstByteSpan payload, std::size_t used, const ChunkContext& context, ByteSpan out,
                           Scratch& scratch, const Add& add) {
  if ((std::to_integer<unsigned>(payload[0]) & kGradientExceptions) == 0) {
    BITSNAP_TRY(check_payload_size("gradient_step", payload.size(), used));
    add(out);
    return {};
  }
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const ByteSpan expected, scratch.take(out.size()));
  add(expected);
  const Input beside{.kind = InputKind::base, .dtype = context.dtype, .bytes = expected};
  return ordinal_delta_decoder().decode(payload.subspan(used), {context.dtype, context.elements, {&beside, 1}}, out,
                                        scratch);
}

Result<void> decode_square(ConstByteSpan payload, const ChunkContext& context, ByteSpan out, Scratch& scratch) {
  ByteCursor cursor(payload);
  BITSNAP_ASSIGN(const SquareConstants constants, read_square_header(cursor));
  const auto add = [&](ByteSpan to) { add_squares(context.inputs, constants, to); };
  return decode_around(payload, cursor.offset(), context, out, scratch, add);
}

Result<AverageConstants> read_average_header(ByteCursor& cursor) {
  BITSNAP_ASSIGN(const auto form, cursor.read<std::uint8_t>("gradient_step payload: form"));
  const unsigned kind = form & ~unsigned{kGradientExceptions};
  if (kind != kAverageForm) {
    return corrupt("gradient_step payload: form is {}, expected {} for an average", kind, kAverageForm);
  }
  BITSNAP_ASSIGN(const auto operations, cursor.read<std::uint8_t>("gradient_step payload: operations"));
  if (operations >= kGradientForms) {
    return corrupt("gradient_step payload: operations are {}, expected less than {}", operations, kGradientForms);
  }
  AverageConstants constants{.form = static_cast<GradientForm>(operations)};
  BITSNAP_ASSIGN(constants.keep, read_factor(cursor));
  BITSNAP_ASSIGN(constants.gain, read_factor(cursor));
  return constants;
}

Result<void> decode_average(ConstByteSpan payload, const ChunkContext& context, ByteSpan out, Scratch& scratch) {
  ByteCursor cursor(payload);
  BITSNAP_ASSIGN(const AverageConstants constants, read_average_header(cursor));
  const auto add = [&](ByteSpan to) { add_average(context.inputs, constants, to); };
  return decode_around(payload, cursor.offset(), context, out, scratch, add);
}

class GradientStepDecoder final : public Decoder {
 public:
  GradientStepDecoder() noexcept
      : Decoder(CodecId::gradient_step, "gradient_step",
                "moments one step later: the gradient of few significant bits that was added") {}
  bool accepts(DType dtype, std::span<const Input> inputs) const noexcept override {
    return dtype == DType::f32 && (is_one_base(dtype, inputs) || are_of_square(inputs) || are_of_average(inputs));
  }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out,
                      Scratch& scratch) const override {
    if (are_of_square(context.inputs)) return decode_square(payload, context, out, scratch);
    if (are_of_average(context.inputs)) return decode_average(payload, context, out, scratch);
    ByteCursor cursor(payload);
    BITSNAP_ASSIGN(const GradientHeader header, read_header(cursor));
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const ByteSpan numbers, scratch.take(context.elements * element_size(dtype_of(header.kind))));
    BITSNAP_TRY(decode_numbers(header.kind, *header.coder, header.numbers, context.elements, numbers, scratch));
    const auto add = [&](ByteSpan to) {
      add_gradient(header.form, header.constants, context.inputs[0].bytes, header.kind, numbers, to);
    };
    return decode_around(payload, cursor.offset(), context, out, scratch, add);
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

namespace {

bool are_of(std::span<const Input> inputs, std::span<const InputKind> kinds) noexcept {
  return std::ranges::equal(inputs, kinds, [](const Input& input, InputKind kind) {
    return input.kind == kind && input.dtype == DType::f32;
  });
}

}  // namespace

bool are_of_square(std::span<const Input> inputs) noexcept {
  constexpr InputKind kKinds[] = {InputKind::base, InputKind::base, InputKind::peer};
  return are_of(inputs, kKinds);
}

bool are_of_average(std::span<const Input> inputs) noexcept {
  constexpr InputKind kKinds[] = {InputKind::base, InputKind::peer};
  return are_of(inputs, kKinds);
}

void add_average(std::span<const Input> inputs, const AverageConstants& constants, ByteSpan out) noexcept {
  add_gradient(constants.form, {constants.keep, constants.gain, 1}, inputs[0].bytes, GradientNumbers::f32,
               inputs[1].bytes, out);
}

void add_squares(std::span<const Input> inputs, const SquareConstants& constants, ByteSpan out) noexcept {
  const FloatMode mode;
  kernels<GradientStepKernels>().add_squares({as_u8(inputs[0].bytes), as_u8(inputs[1].bytes), as_u8(inputs[2].bytes)},
                                             out.size() / sizeof(float), constants,
                                             reinterpret_cast<std::uint8_t*>(out.data()));
}

const Decoder& gradient_step_decoder() noexcept { return only<GradientStepDecoder>(); }

}  // namespace bitsnap::codec
