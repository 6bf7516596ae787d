// Codec raw, writing: the chunk as it is. It takes every chunk, so that one of the codecs always does. spec.md.
#include <cstring>

#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"

namespace bitsnap::codec {
namespace {

class RawEncoder final : public Encoder {
 public:
  const Decoder& decoder() const noexcept override { return raw_decoder(); }

  Result<std::optional<Estimate>> analyze(ConstByteSpan, const EncodeContext& sample_context, std::size_t elements,
                                          Scratch&) const override {
    return Estimate{.payload_bytes = elements * element_size(sample_context.dtype)};
  }

  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return elements * element_size(dtype);
  }

  Result<std::optional<std::size_t>> encode(ConstByteSpan data, const EncodeContext&, ByteSpan out,
                                            Scratch&) const override {
    std::memcpy(out.data(), data.data(), data.size());
    return data.size();
  }
};

}  // namespace

const Encoder& raw_encoder() noexcept {
  static const RawEncoder encoder;
  return encoder;
}

}  // namespace bitsnap::codec
