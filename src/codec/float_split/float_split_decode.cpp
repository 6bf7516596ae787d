// Codec float_split, reading: byte planes of floats whose sign has been moved out of the exponent's way. spec.md.
#include "codec/float_split/float_split.hpp"

#include <string>

#include "codec/builtin_codecs.hpp"
#include "codec/payload_checks.hpp"

namespace bitsnap::codec {
namespace {

class FloatSplitDecoder final : public Decoder {
 public:
  CodecId id() const noexcept override { return CodecId::float_split; }
  std::string_view name() const noexcept override { return "float_split"; }
  std::string_view summary() const noexcept override {
    return "floats: the exponent Huffman coded, sign and mantissa beside it";
  }

  bool accepts(DType dtype, std::span<const Input> inputs) const noexcept override {
    return is_float(dtype) && inputs.empty();
  }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out,
                      Scratch& scratch) const override {
    ByteCursor cursor(payload);
    BITSNAP_ASSIGN(const auto place, cursor.read<std::uint8_t>("float_split payload: place of the sign"));
    const std::size_t element_bytes = element_size(context.dtype);
    const SignPlace last_place = element_bytes == 1 ? SignPlace::top : SignPlace::none;
    if (place > static_cast<std::uint8_t>(last_place)) {
      return fail(ErrorKind::corrupt, "float_split payload: place of the sign is " + std::to_string(place) +
                                          ", expected at most " + std::to_string(static_cast<int>(last_place)) +
                                          " for " + std::string(dtype_name(context.dtype)));
    }
    return decode_plane_groups(payload.subspan(kFloatSplitHeaderBytes),
                               {.elements = context.elements,
                                .element_bytes = element_bytes,
                                .form = plane_form(static_cast<SignPlace>(place))},
                               out, scratch);
  }
};

}  // namespace

const Decoder& float_split_decoder() noexcept {
  static const FloatSplitDecoder decoder;
  return decoder;
}

}  // namespace bitsnap::codec
