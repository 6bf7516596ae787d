// Decodes raw: the unchanged chunk. See spec.md.
#include <cstring>

#include "codec/builtin_codecs.hpp"
#include "codec/payload_checks.hpp"

namespace bitsnap::codec {
namespace {

class RawDecoder final : public Decoder {
 public:
  RawDecoder() noexcept : Decoder(CodecId::raw, "raw", "the unchanged bytes") {}
  bool accepts(DType, std::span<const Input> inputs) const noexcept override { return inputs.empty(); }

  Result<void> decode(ConstByteSpan payload, const ChunkContext&, ByteSpan out, Scratch&) const override {
    BITSNAP_TRY(check_payload_size(name(), payload.size(), out.size()));
    std::memcpy(out.data(), payload.data(), out.size());
    return {};
  }
};

}  // namespace

const Decoder& raw_decoder() noexcept { return only<RawDecoder>(); }

}  // namespace bitsnap::codec
