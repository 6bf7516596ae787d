// Codec bitmask, writing: BitSnap's packed mask of changed elements, then the changed elements. spec.md.
#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "entropy/change_mask.hpp"

namespace bitsnap::codec {
namespace {

class BitmaskEncoder final : public Encoder {
 public:
  const Decoder& decoder() const noexcept override { return bitmask_decoder(); }

  // What is written is smaller than the chunk, and the mask never larger.
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return elements * element_size(dtype);
  }

  Result<std::optional<std::size_t>> encode(ConstByteSpan data, const EncodeContext& context, ByteSpan out,
                                            Scratch&) const override {
    const std::size_t element_bytes = element_size(context.dtype);
    std::byte* mask = out.data();
    std::byte* values = mask + entropy::mask_bytes(context.elements);
    const std::size_t changed =
        entropy::changed_mask(data.data(), context.inputs[0].bytes.data(), context.elements, element_bytes, mask);
    const std::size_t size = entropy::mask_bytes(context.elements) + changed * element_bytes;
    if (size >= data.size()) return std::nullopt;
    entropy::gather_changed(data.data(), mask, context.elements, element_bytes, values);
    return size;
  }
};

}  // namespace

const Encoder& bitmask_encoder() noexcept {
  static const BitmaskEncoder encoder;
  return encoder;
}

}  // namespace bitsnap::codec
