// Decodes constant: one element, repeated. See spec.md.
#include <algorithm>
#include <cstring>

#include "codec/builtin_codecs.hpp"
#include "codec/payload_checks.hpp"

namespace bitsnap::codec {
namespace {

class ConstantDecoder final : public Decoder {
 public:
  ConstantDecoder() noexcept : Decoder(CodecId::constant, "constant", "one element, repeated") {}
  bool accepts(DType, std::span<const Input> inputs) const noexcept override { return inputs.empty(); }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out, Scratch&) const override {
    BITSNAP_TRY(check_payload_size(name(), payload.size(), element_size(context.dtype)));
    std::memcpy(out.data(), payload.data(), payload.size());
    // Copies double in length until they fill half a page.
    constexpr std::size_t kLongestCopy = 2048;
    std::size_t filled = payload.size();
    while (filled < out.size()) {
      const std::size_t step = std::min({filled, kLongestCopy, out.size() - filled});
      std::memcpy(out.data() + filled, out.data(), step);
      filled += step;
    }
    return {};
  }
};

}  // namespace

const Decoder& constant_decoder() noexcept { return only<ConstantDecoder>(); }

}  // namespace bitsnap::codec
