// Decodes same: a copy of the one input. See spec.md.
#include <cstring>

#include "codec/builtin_codecs.hpp"
#include "codec/payload_checks.hpp"

namespace bitsnap::codec {
namespace {

class SameDecoder final : public Decoder {
 public:
  SameDecoder() noexcept : Decoder(CodecId::same, "same", "unchanged: the bytes of its input") {}
  bool accepts(DType dtype, std::span<const Input> inputs) const noexcept override {
    return inputs.size() == 1 && inputs[0].dtype == dtype;
  }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out, Scratch&) const override {
    BITSNAP_TRY(check_payload_size(name(), payload.size(), 0));
    std::memcpy(out.data(), context.inputs[0].bytes.data(), out.size());
    return {};
  }
};

}  // namespace

const Decoder& same_decoder() noexcept { return only<SameDecoder>(); }

}  // namespace bitsnap::codec
