// Encodes same: an empty payload if the chunk equals its input. See spec.md.
#include <cstring>

#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"

namespace bitsnap::codec {
namespace {

class SameEncoder final : public Encoder {
 public:
  SameEncoder() noexcept : Encoder(same_decoder()) {}

  std::size_t max_encoded_size(DType, std::size_t) const noexcept override { return 0; }

  Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext& context, ByteSpan, Scratch&) const override {
    if (std::memcmp(data.data(), context.inputs[0].bytes.data(), data.size()) != 0) return std::nullopt;
    return std::size_t{0};
  }
};

}  // namespace

const Encoder& same_encoder() noexcept { return only<SameEncoder>(); }

}  // namespace bitsnap::codec
