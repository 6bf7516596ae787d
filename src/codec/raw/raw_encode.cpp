// Encodes raw: the unchanged chunk. It accepts every chunk, so there is always a codec. See spec.md.
#include <cstring>

#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"

namespace bitsnap::codec {
namespace {

class RawEncoder final : public Encoder {
 public:
  RawEncoder() noexcept : Encoder(raw_decoder()) {}

  Result<std::optional<Estimate>> analyze(ConstByteSpan, const EncodeContext& sample_context, std::size_t elements,
                                          Scratch&) const override {
    return Estimate{.payload_bytes = elements * element_size(sample_context.dtype)};
  }

  Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext&, ByteSpan out, Scratch&) const override {
    std::memcpy(out.data(), data.data(), data.size());
    return data.size();
  }
};

}  // namespace

const Encoder& raw_encoder() noexcept { return only<RawEncoder>(); }

}  // namespace bitsnap::codec
