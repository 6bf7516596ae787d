// Decodes zstd: one zstd frame with exactly the chunk. See spec.md.
#include <zstd.h>

#include <string>

#include "codec/builtin_codecs.hpp"
#include "codec/payload_checks.hpp"
#include "codec/zstd/zstd_contexts.hpp"

namespace bitsnap::codec {
namespace {

constexpr std::size_t kMaxWindowBytes = std::size_t{2} << 20;  // the largest chunk: 2^18 elements of 8 bytes

// The window size in a frame header (RFC 8878, 3.1.1.1); 0 for a single segment, whose window is its content.
// Precondition: the header is complete, which ZSTD_getFrameContentSize has checked.
std::size_t window_bytes(ConstByteSpan frame) noexcept {
  const unsigned descriptor = std::to_integer<unsigned>(frame[4]);
  if ((descriptor >> 5 & 1) != 0) return 0;
  const unsigned window = std::to_integer<unsigned>(frame[5]);
  const std::size_t base = std::size_t{1} << (10 + (window >> 3));
  return base + base / 8 * (window & 7);
}

Result<void> check_frame(ConstByteSpan payload, std::size_t chunk_bytes) {
  if (payload.size() > chunk_bytes) {
    return corrupt("zstd payload: {} bytes for a chunk of {} bytes", payload.size(), chunk_bytes);
  }
  if (payload.size() < sizeof(std::uint32_t)) {
    return fail(ErrorKind::truncated, fmt::format("zstd payload: {} bytes are too few for a frame", payload.size()));
  }
  // The library would accept skippable and legacy frames.
  if (const auto magic = load_le<std::uint32_t>(payload.data()); magic != ZSTD_MAGICNUMBER) {
    return corrupt("zstd payload: magic number {} is not the magic number of zstd", magic);
  }
  const std::size_t frame_bytes = ZSTD_findFrameCompressedSize(payload.data(), payload.size());
  if (ZSTD_isError(frame_bytes) != 0) {
    return corrupt("zstd payload: incomplete frame: {}", ZSTD_getErrorName(frame_bytes));
  }
  BITSNAP_TRY(check_payload_size("zstd", payload.size(), frame_bytes));
  const unsigned long long content = ZSTD_getFrameContentSize(payload.data(), payload.size());
  if (content != chunk_bytes) {
    const bool stated = content != ZSTD_CONTENTSIZE_UNKNOWN && content != ZSTD_CONTENTSIZE_ERROR;
    return corrupt("zstd payload: the frame states {}, the chunk has {}",
                   stated ? std::to_string(content) + " bytes" : std::string("no size"), chunk_bytes);
  }
  if (ZSTD_getDictID_fromFrame(payload.data(), payload.size()) != 0) {
    return corrupt("zstd payload: the frame needs a dictionary");
  }
  if (const std::size_t window = window_bytes(payload); window > kMaxWindowBytes) {
    return corrupt("zstd payload: the frame needs a window of {} bytes, the limit is {}", window, kMaxWindowBytes);
  }
  return {};
}

class ZstdDecoder final : public Decoder {
 public:
  ZstdDecoder() noexcept : Decoder(CodecId::zstd, "zstd", "one zstd frame, for general bytes") {}
  bool accepts(DType, std::span<const Input> inputs) const noexcept override { return inputs.empty(); }

  Result<void> decode(ConstByteSpan payload, const ChunkContext&, ByteSpan out, Scratch&) const override {
    BITSNAP_TRY(check_frame(payload, out.size()));
    ZSTD_DCtx* context = zstd_decompression_context();
    if (context == nullptr) return fail(ErrorKind::resource_exhausted, "no memory for a zstd context");
    const std::size_t size = ZSTD_decompressDCtx(context, out.data(), out.size(), payload.data(), payload.size());
    if (ZSTD_isError(size) != 0) {
      return corrupt("zstd payload: {}", ZSTD_getErrorName(size));
    }
    if (size != out.size()) {
      return corrupt("zstd payload: decodes to {} bytes, the chunk has {}", size, out.size());
    }
    return {};
  }
};

}  // namespace

const Decoder& zstd_decoder() noexcept { return only<ZstdDecoder>(); }

}  // namespace bitsnap::codec
