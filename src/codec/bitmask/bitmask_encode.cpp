// Encodes bitmask: BitSnap's packed mask of the changed elements, then these elements. See spec.md.
#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "entropy/change_mask.hpp"

namespace bitsnap::codec {
namespace {

class BitmaskEncoder final : public Encoder {
 public:
  BitmaskEncoder() noexcept : Encoder(bitmask_decoder()) {}

  Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext& context, ByteSpan out, Scratch&) const override {
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

const Encoder& bitmask_encoder() noexcept { return only<BitmaskEncoder>(); }

}  // namespace bitsnap::codec
