// Encodes byte_group: LMC's byte planes of the chunk or of its XOR with the base. See spec.md.
#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "codec/plane_groups_encode.hpp"

namespace bitsnap::codec {
namespace {

class ByteGroupEncoder final : public Encoder {
 public:
  ByteGroupEncoder() noexcept : Encoder(byte_group_decoder()) {}

  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return max_plane_groups_size(elements, element_size(dtype));
  }

  Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext& context, ByteSpan out,
                             Scratch& scratch) const override {
    const bool has_base = !context.inputs.empty();
    BITSNAP_ASSIGN(const std::size_t size,
                   encode_plane_groups(data,
                                       {.elements = context.elements,
                                        .element_bytes = element_size(context.dtype),
                                        .form = has_base ? PlaneForm::xor_base : PlaneForm::plain,
                                        .base = has_base ? context.inputs[0].bytes.data() : nullptr},
                                       out, scratch));
    if (size >= data.size()) return std::nullopt;
    return size;
  }
};

}  // namespace

const Encoder& byte_group_encoder() noexcept { return only<ByteGroupEncoder>(); }

}  // namespace bitsnap::codec
