// Codec constant, reading: one element, repeated. spec.md.
#include <algorithm>
#include <cstring>

#include "codec/builtin_codecs.hpp"
#include "codec/payload_checks.hpp"

namespace bitsnap::codec {
namespace {

class ConstantDecoder final : public Decoder {
 public:
  CodecId id() const noexcept override { return CodecId::constant; }
  std::string_view name() const noexcept override { return "constant"; }
  std::string_view summary() const noexcept override { return "one element, repeated"; }
  bool accepts(DType, std::span<const Input> inputs) const noexcept override { return inputs.empty(); }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out, Scratch&) const override {
    BITSNAP_TRY(check_payload_size(name(), payload.size(), element_size(context.dtype)));
    std::memcpy(out.data(), payload.data(), payload.size());
    // What is written already is the source of the next copy, twice as long each time until it fills half a page.
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

const Decoder& constant_decoder() noexcept {
  static const ConstantDecoder decoder;
  return decoder;
}

}  // namespace bitsnap::codec
