// Codec float_split, reading: floats whose exponent is coded and whose other bits are not. spec.md.
#include "codec/float_split/float_split.hpp"

#include <string>

#include "codec/builtin_codecs.hpp"
#include "codec/payload_checks.hpp"
#include "entropy/split_elements.hpp"

namespace bitsnap::codec {
namespace {

class FloatSplitDecoder final : public Decoder {
 public:
  CodecId id() const noexcept override { return CodecId::float_split; }
  std::string_view name() const noexcept override { return "float_split"; }
  std::string_view summary() const noexcept override {
    return "floats: the exponent coded, sign and mantissa beside it";
  }

  bool accepts(DType dtype, std::span<const Input> inputs) const noexcept override {
    return is_float(dtype) && inputs.empty();
  }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out,
                      Scratch& scratch) const override {
    ByteCursor cursor(payload);
    BITSNAP_ASSIGN(const auto number, cursor.read<std::uint8_t>("float_split payload: form"));
    const std::size_t element_bytes = element_size(context.dtype);
    const auto last = static_cast<std::uint8_t>(last_form(element_bytes));
    if (number > last) {
      return fail(ErrorKind::corrupt, "float_split payload: form is " + std::to_string(number) + ", expected at most " +
                                          std::to_string(last) + " for " + std::string(dtype_name(context.dtype)));
    }
    const auto form = static_cast<FloatSplitForm>(number);
    const ConstByteSpan coded = payload.subspan(kFloatSplitHeaderBytes);
    if (is_lanes(form)) {
      return entropy::decode_split(coded,
                                   {.elements = context.elements,
                                    .element_bytes = element_bytes,
                                    .rotated = form == FloatSplitForm::lanes_rotated},
                                   out, scratch);
    }
    return decode_plane_groups(
        coded, {.elements = context.elements, .element_bytes = element_bytes, .form = plane_form(form)}, out, scratch);
  }
};

}  // namespace

const Decoder& float_split_decoder() noexcept {
  static const FloatSplitDecoder decoder;
  return decoder;
}

}  // namespace bitsnap::codec
