// Codec float_split, writing: byte planes of floats whose sign is moved out of the exponent's way. spec.md.
#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "codec/float_split/float_split.hpp"
#include "codec/plane_groups_encode.hpp"

namespace bitsnap::codec {
namespace {

class FloatSplitEncoder final : public Encoder {
 public:
  const Decoder& decoder() const noexcept override { return float_split_decoder(); }

  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return kFloatSplitHeaderBytes + max_plane_groups_size(elements, element_size(dtype));
  }

  Result<std::optional<std::size_t>> encode(ConstByteSpan data, const ChunkContext& context, ByteSpan out,
                                            Scratch& scratch) const override {
    PlaneGeometry geometry{.elements = context.elements, .element_bytes = element_size(context.dtype)};
    BITSNAP_ASSIGN(const SignPlace place, choose_sign_place(data, geometry, scratch));
    geometry.form = plane_form(place);
    out[0] = static_cast<std::byte>(place);
    BITSNAP_ASSIGN(const std::size_t planes_size,
                   encode_plane_groups(data, geometry, out.subspan(kFloatSplitHeaderBytes), scratch));
    const std::size_t size = kFloatSplitHeaderBytes + planes_size;
    if (size >= data.size()) return std::nullopt;
    return size;
  }

 private:
  // A sign that varies goes to the bottom. Without any, leaving it out is best where the mantissa is random, and
  // leaving the elements alone where it is not, because packing hides the pattern: the first group of the chunk tells.
  static Result<SignPlace> choose_sign_place(ConstByteSpan data, PlaneGeometry geometry, Scratch& scratch) {
    if (geometry.element_bytes == 1) return SignPlace::top;
    if (entropy::any_sign_bit_set(data.data(), geometry.elements, geometry.element_bytes)) return SignPlace::bottom;
    geometry.elements = std::min(geometry.elements, entropy::kBlockBytes);
    geometry.form = plane_form(SignPlace::top);
    BITSNAP_ASSIGN(const std::size_t top_size, plane_groups_size(data, geometry, scratch));
    geometry.form = plane_form(SignPlace::none);
    BITSNAP_ASSIGN(const std::size_t none_size, plane_groups_size(data, geometry, scratch));
    return top_size <= none_size ? SignPlace::top : SignPlace::none;
  }
};

}  // namespace

const Encoder& float_split_encoder() noexcept {
  static const FloatSplitEncoder encoder;
  return encoder;
}

}  // namespace bitsnap::codec
