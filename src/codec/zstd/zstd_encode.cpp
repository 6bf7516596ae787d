// Encodes zstd: one zstd frame with the chunk. See spec.md. Each thread keeps one compression context (1.3 MB at this
// level) until it ends.
#include <zstd.h>

#include <memory>

#include <fmt/format.h>

#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"

namespace bitsnap::codec {
namespace {

constexpr int kLevel = 3;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const noexcept { ZSTD_freeCCtx(context); }
};

ZSTD_CCtx* thread_context() noexcept {
  thread_local std::unique_ptr<ZSTD_CCtx, FreeContext> context;
  if (!context) context.reset(ZSTD_createCCtx());
  return context.get();
}

class ZstdEncoder final : public Encoder {
 public:
  ZstdEncoder() noexcept : Encoder(zstd_decoder()) {}

  // The library is fastest with this much room. A payload larger than the chunk is not returned.
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return ZSTD_compressBound(elements * element_size(dtype));
  }

  Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext&, ByteSpan out, Scratch&) const override {
    ZSTD_CCtx* context = thread_context();
    if (context == nullptr) return fail(ErrorKind::resource_exhausted, "no memory for a zstd context");
    const std::size_t size = ZSTD_compressCCtx(context, out.data(), out.size(), data.data(), data.size(), kLevel);
    if (ZSTD_isError(size) != 0) {
      // The room suffices for any data, so the library can only lack memory.
      return fail(ErrorKind::resource_exhausted, fmt::format("zstd cannot encode: {}", ZSTD_getErrorName(size)));
    }
    if (size >= data.size()) return std::nullopt;
    return size;
  }
};

}  // namespace

const Encoder& zstd_encoder() noexcept { return only<ZstdEncoder>(); }

}  // namespace bitsnap::codec
