// Decodes rounded_from: weights from their masters, and masters from their weights. See spec.md.
#include "codec/rounded_from/rounded_from.hpp"

#include "base/cpu_dispatch.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/payload_checks.hpp"
#include "codec/rounded_from/rounding_kernel.hpp"

namespace bitsnap::codec {
namespace {

class RoundedFromDecoder final : public Decoder {
 public:
  RoundedFromDecoder() noexcept
      : Decoder(CodecId::rounded_from, "rounded_from",
                "weights as the roundings of their fp32 masters, or masters as the bits that their weights lack") {}
  bool accepts(DType dtype, std::span<const Input> inputs) const noexcept override {
    if (inputs.size() != 1 || inputs[0].kind != InputKind::peer) return false;
    if (dtype == DType::f32) return inputs[0].dtype == DType::bf16;
    return (dtype == DType::bf16 || dtype == DType::f16) && inputs[0].dtype == DType::f32;
  }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out,
                      Scratch& scratch) const override {
    ByteCursor cursor(payload);
    BITSNAP_ASSIGN(const auto form, cursor.read<std::uint8_t>("rounded_from payload: form"));
    const unsigned most = context.dtype == DType::f32 ? kRoundedExceptions | kRoundedLowHalves : kRoundedExceptions;
    if (form > most) {
      return corrupt("rounded_from payload: form is {}, expected at most {} for {}", form, most,
                     dtype_name(context.dtype));
    }
    ConstByteSpan lows;
    if ((form & kRoundedLowHalves) != 0) {
      BITSNAP_ASSIGN(lows, cursor.take(std::uint64_t{context.elements} * 2, "rounded_from payload: lower halves"));
    }
    if ((form & kRoundedExceptions) == 0) {
      BITSNAP_TRY(check_payload_size("rounded_from", payload.size(), cursor.offset()));
      expect_elements(context, lows, out);
      return {};
    }
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const ByteSpan expected, scratch.take(out.size()));
    expect_elements(context, lows, expected);
    const Input base{.kind = InputKind::base, .dtype = context.dtype, .bytes = expected};
    const ChunkContext beside{context.dtype, context.elements, {&base, 1}};
    return ordinal_delta_decoder().decode(payload.subspan(cursor.offset()), beside, out, scratch);
  }
};

}  // namespace

void expect_elements(const ChunkContext& context, ConstByteSpan lows, ByteSpan out) noexcept {
  const auto* const from = reinterpret_cast<const std::uint8_t*>(context.inputs[0].bytes.data());
  auto* const to = reinterpret_cast<std::uint8_t*>(out.data());
  switch (context.dtype) {
    case DType::bf16: return kernels<RoundingKernels>().round_to_bf16(from, context.elements, to);
    case DType::f16: return kernels<RoundingKernels>().round_to_f16(from, context.elements, to);
    default: break;
  }
  const auto* const halves = lows.empty() ? nullptr : reinterpret_cast<const std::uint8_t*>(lows.data());
  kernels<RoundingKernels>().widen_bf16(from, halves, context.elements, to);
}

const Decoder& rounded_from_decoder() noexcept { return only<RoundedFromDecoder>(); }

}  // namespace bitsnap::codec
