// Copies with non-temporal stores, which bypass the caches, as memcpy does for large sizes.
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/bytes.hpp"
#include "bench/native/native_coders.hpp"
#include "cli/analysis/baseline_coders.hpp"

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

std::size_t same_size(std::size_t bytes) noexcept { return bytes; }

}  // namespace

CoderPointer make_streaming_copy_coder() {
  return std::make_shared<cli::ByteCoder>("memcpy-nt", same_size, [] {
    return cli::ByteFunctions{.encode =
                                  [](ConstByteSpan in, ByteSpan out) {
                                    stream(out.data(), in.data(), in.size());
                                    return in.size();
                                  },
                              .decode =
                                  [](ConstByteSpan in, ByteSpan out) {
                                    stream(out.data(), in.data(), out.size());
                                    return true;
                                  }};
  });
}

}  // namespace bitsnap::bench
