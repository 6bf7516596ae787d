// Copying, which no engine can be faster than: by memcpy, and with stores that go past the caches, as memcpy itself
// does for copies of many megabytes.
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "bench/native/native_engine.hpp"

namespace bitsnap::bench {
namespace {

void copy(std::byte* to, const std::byte* from, std::size_t size) noexcept { std::memcpy(to, from, size); }

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

using Copy = void (*)(std::byte* to, const std::byte* from, std::size_t size) noexcept;

class CopyWorker final : public Worker {
 public:
  explicit CopyWorker(Copy copy) : copy_(copy) {}

  Result<std::optional<std::size_t>> encode(const Chunk& chunk, ByteSpan out) override {
    copy_(out.data(), chunk.data.data(), chunk.data.size());
    return chunk.data.size();
  }
  Result<void> decode(const Chunk&, ConstByteSpan payload, ByteSpan out) override {
    copy_(out.data(), payload.data(), out.size());
    return {};
  }

 private:
  Copy copy_;
};

class CopyEngine final : public Engine {
 public:
  CopyEngine(std::string name, Copy copy) : name_(std::move(name)), copy_(copy) {}

  std::string name() const override { return name_; }
  bool uses_base() const noexcept override { return false; }
  bool accepts(DType) const noexcept override { return true; }
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return elements * element_size(dtype);
  }
  std::unique_ptr<Worker> make_worker(DType, Role) const override { return std::make_unique<CopyWorker>(copy_); }

 private:
  std::string name_;
  Copy copy_;
};

}  // namespace

void add_copy_engines(Engines& engines) {
  engines.push_back(std::make_unique<CopyEngine>("memcpy", copy));
  engines.push_back(std::make_unique<CopyEngine>("memcpy-nt", stream));
}

}  // namespace bitsnap::bench
