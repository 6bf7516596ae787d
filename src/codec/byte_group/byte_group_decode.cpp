// Decodes byte_group: LMC's byte planes of the chunk or of its XOR with the base. See spec.md.
#include "codec/builtin_codecs.hpp"
#include "codec/payload_checks.hpp"
#include "codec/plane_groups.hpp"

namespace bitsnap::codec {
namespace {

class ByteGroupDecoder final : public Decoder {
 public:
  ByteGroupDecoder() noexcept
      : Decoder(CodecId::byte_group, "byte_group",
                "LMC: byte planes, of the chunk or its XOR with the base, Huffman coded") {}
  bool accepts(DType dtype, std::span<const Input> inputs) const noexcept override {
    return inputs.empty() || is_one_base(dtype, inputs);
  }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out,
                      Scratch& scratch) const override {
    const bool has_base = !context.inputs.empty();
    return decode_plane_groups(payload,
                               {.elements = context.elements,
                                .element_bytes = element_size(context.dtype),
                                .form = has_base ? PlaneForm::xor_base : PlaneForm::plain,
                                .base = has_base ? context.inputs[0].bytes.data() : nullptr},
                               out, scratch);
  }
};

}  // namespace

const Decoder& byte_group_decoder() noexcept { return only<ByteGroupDecoder>(); }

}  // namespace bitsnap::codec
