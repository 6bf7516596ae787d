// Decodes ordinal_delta: floats as ULP distances from their base. See spec.md.

#include "codec/builtin_codecs.hpp"
#include "codec/ordinal_delta/dense_deltas_decode.hpp"
#include "codec/ordinal_delta/ordinal_delta.hpp"
#include "codec/ordinal_delta/sparse_deltas_decode.hpp"
#include "codec/payload_checks.hpp"

namespace bitsnap::codec {
namespace {

class OrdinalDeltaDecoder final : public Decoder {
 public:
  OrdinalDeltaDecoder() noexcept
      : Decoder(CodecId::ordinal_delta, "ordinal_delta",
                "floats: ULP distances from the base, coded by the base's exponent") {}
  bool accepts(DType dtype, std::span<const Input> inputs) const noexcept override {
    return has_deltas(dtype) && is_one_base(dtype, inputs);
  }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out,
                      Scratch& scratch) const override {
    const ConstByteSpan base = context.inputs[0].bytes;
    if (!is_of_short_elements(payload)) {
      return decode_deltas(payload, {.floats = {.dtype = context.dtype}, .base = base, .out = out}, scratch);
    }
    const Scratch::Frame frame(scratch);
    ByteCursor cursor(payload);
    BITSNAP_ASSIGN(const ShortHead head, read_short_head(cursor, context));
    BITSNAP_TRY(
        decode_deltas(payload.subspan(cursor.offset()), {.floats = head.floats, .base = base, .out = out}, scratch));
    put_exceptions(head, out);
    return {};
  }

 private:
  static Result<void> decode_deltas(ConstByteSpan payload, const MovedElements& elements, Scratch& scratch) {
    ByteCursor cursor(payload);
    BITSNAP_ASSIGN(const auto form, cursor.read<std::uint8_t>("ordinal_delta payload: form"));
    const bool can_have_floors = elements.floats.dtype == DType::f32 && elements.floats.zero_bits == 0;
    switch (static_cast<OrdinalDeltaForm>(form)) {
      case OrdinalDeltaForm::dense: return decode_dense_deltas(payload, elements, scratch);
      case OrdinalDeltaForm::sparse: return decode_sparse_deltas(payload, elements, scratch);
      case OrdinalDeltaForm::above_floor:
        if (can_have_floors) return decode_dense_deltas(payload, elements, scratch);
        break;
    }
    return corrupt("ordinal_delta payload: form is {}, expected at most {} for {}{}", form, can_have_floors ? "2" : "1",
                   elements.floats.zero_bits > 0 ? "shortened " : "", dtype_name(elements.floats.dtype));
  }
};

}  // namespace

const Decoder& ordinal_delta_decoder() noexcept { return only<OrdinalDeltaDecoder>(); }

}  // namespace bitsnap::codec
