// Copies with non-temporal stores, which bypass the caches, as memcpy does for large sizes.
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/bytes.hpp"
#include "bench/native/native_coders.hpp"

namespace bitsnap::bench {
namespace {

void stream(std::byte* to, const std::byte* from, std::size_t size) noexcept {
#if defined(__SSE2__)
  while (size > 0 && reinterpret_cast<std::uintptr_t>(to) % 64 != 0) {
    *to++ = *from++;
    --size;
  }
  for (; size >= 64; size -= 64, to += 64, from += 64) {
    for (std::size_t k = 0; k < 64; k += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + k), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k)));
    }
  }
  _mm_sfence();
#endif
  std::memcpy(to, from, size);
}

class StreamingCopyWorker final : public CoderWorker {
 public:
  Result<std::optional<std::size_t>> encode(const CoderChunk& chunk, ByteSpan out) override {
    stream(out.data(), chunk.data.data(), chunk.data.size());
    return chunk.data.size();
  }
  Result<void> decode(const CoderChunk&, ConstByteSpan payload, ByteSpan out) override {
    stream(out.data(), payload.data(), out.size());
    return {};
  }
};

class StreamingCopyCoder final : public Coder {
 public:
  std::string name() const override { return "memcpy-nt"; }
  bool accepts(DType) const noexcept override { return true; }
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return elements * element_size(dtype);
  }
  std::unique_ptr<CoderWorker> make_worker() const override { return std::make_unique<StreamingCopyWorker>(); }
};

}  // namespace

CoderPointer make_streaming_copy_coder() { return std::make_shared<StreamingCopyCoder>(); }

}  // namespace bitsnap::bench
