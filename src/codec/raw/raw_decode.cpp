// Codec raw, reading: the chunk as it is. spec.md.
#include <cstring>

#include "codec/builtin_codecs.hpp"
#include "codec/payload_checks.hpp"

namespace bitsnap::codec {
namespace {

class RawDecoder final : public Decoder {
 public:
  CodecId id() const noexcept override { return CodecId::raw; }
  std::string_view name() const noexcept override { return "raw"; }
  std::string_view summary() const noexcept override { return "the unchanged bytes"; }
  bool accepts(DType, std::span<const Input> inputs) const noexcept override { return inputs.empty(); }

  Result<void> decode(ConstByteSpan payload, const ChunkContext&, ByteSpan out, Scratch&) const override {
    BITSNAP_TRY(check_payload_size(name(), payload.size(), out.size()));
    std::memcpy(out.data(), payload.data(), out.size());
    return {};
  }
};

}  // namespace

const Decoder& raw_decoder() noexcept {
  static const RawDecoder decoder;
  return decoder;
}

}  // namespace bitsnap::codec
