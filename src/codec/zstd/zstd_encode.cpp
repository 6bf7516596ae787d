// Encodes zstd: one zstd frame with the chunk. See spec.md.
#include <fmt/format.h>
#include <zstd.h>

#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "codec/zstd/zstd_contexts.hpp"

namespace bitsnap::codec {
namespace {

constexpr int kLevel = 3;

class ZstdEncoder final : public Encoder {
 public:
  ZstdEncoder() noexcept : Encoder(zstd_decoder()) {}

  // The library is fastest with this much room. A payload larger than the chunk is not returned.
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return ZSTD_compressBound(elements * element_size(dtype));
  }

  Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext&, ByteSpan out, Scratch&) const override {
    ZSTD_CCtx* context = zstd_compression_context();
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
