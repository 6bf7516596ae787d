// Decodes bitmask: BitSnap's packed mask of the changed elements, then these elements. See spec.md.

#include "codec/builtin_codecs.hpp"
#include "codec/payload_checks.hpp"
#include "entropy/change_mask.hpp"

namespace bitsnap::codec {
namespace {

class BitmaskDecoder final : public Decoder {
 public:
  BitmaskDecoder() noexcept
      : Decoder(CodecId::bitmask, "bitmask", "BitSnap: mask of the changed elements and their values") {}
  bool accepts(DType dtype, std::span<const Input> inputs) const noexcept override {
    return is_one_base(dtype, inputs);
  }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out, Scratch&) const override {
    const std::size_t element_bytes = element_size(context.dtype);
    const std::size_t mask_bytes = entropy::mask_bytes(context.elements);
    if (payload.size() < mask_bytes) {
      return fail(ErrorKind::truncated,
                  fmt::format("bitmask payload: the mask takes {} bytes, found {}", mask_bytes, payload.size()));
    }
    const std::byte* mask = payload.data();
    if (const std::size_t used_bits = context.elements % 8;
        used_bits != 0 && std::to_integer<unsigned>(mask[mask_bytes - 1]) >> used_bits != 0) {
      return corrupt("bitmask payload: bits after the last of {} elements are set", context.elements);
    }
    const std::size_t changed = entropy::count_changed(mask, context.elements);
    BITSNAP_TRY(check_payload_size(name(), payload.size(), mask_bytes + changed * element_bytes));
    entropy::scatter_changed(context.inputs[0].bytes.data(), mask, mask + mask_bytes, context.elements, element_bytes,
                             out.data());
    return {};
  }
};

}  // namespace

const Decoder& bitmask_decoder() noexcept { return only<BitmaskDecoder>(); }

}  // namespace bitsnap::codec
