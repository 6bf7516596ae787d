// Codec ordinal_delta, reading: floats as the steps that they moved since their base. spec.md.
#include <string>

#include "codec/builtin_codecs.hpp"
#include "codec/ordinal_delta/dense_steps_decode.hpp"
#include "codec/ordinal_delta/ordinal_delta.hpp"
#include "codec/ordinal_delta/sparse_steps_decode.hpp"
#include "codec/payload_checks.hpp"

namespace bitsnap::codec {
namespace {

class OrdinalDeltaDecoder final : public Decoder {
 public:
  CodecId id() const noexcept override { return CodecId::ordinal_delta; }
  std::string_view name() const noexcept override { return "ordinal_delta"; }
  std::string_view summary() const noexcept override {
    return "floats: the steps moved since the base, coded by the base's exponent";
  }

  bool accepts(DType dtype, std::span<const Input> inputs) const noexcept override {
    return has_steps(dtype) && is_one_base(dtype, inputs);
  }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out,
                      Scratch& scratch) const override {
    ByteCursor cursor(payload);
    BITSNAP_ASSIGN(const auto form, cursor.read<std::uint8_t>("ordinal_delta payload: form"));
    switch (static_cast<OrdinalDeltaForm>(form)) {
      case OrdinalDeltaForm::dense: return decode_dense_steps(payload, context, out, scratch);
      case OrdinalDeltaForm::sparse: return decode_sparse_steps(payload, context, out, scratch);
      case OrdinalDeltaForm::above_floor:
        if (context.dtype == DType::f32) return decode_dense_steps(payload, context, out, scratch);
        break;
    }
    return fail(ErrorKind::corrupt, "ordinal_delta payload: form is " + std::to_string(form) + ", expected at most " +
                                        (context.dtype == DType::f32 ? "2" : "1") + " for " +
                                        std::string(dtype_name(context.dtype)));
  }
};

}  // namespace

const Decoder& ordinal_delta_decoder() noexcept {
  static const OrdinalDeltaDecoder decoder;
  return decoder;
}

}  // namespace bitsnap::codec
