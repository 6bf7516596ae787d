// BitX's method (ZipLLM), reconstructed from its description: the XOR with the base is split into byte planes, so that
// exponents and mantissas are separate (the sign is with the mantissa), and zstd -3 codes each plane as a frame.
#include <array>
#include <cstdint>
#include <utility>

#include "base/bytes.hpp"
#include "base/try.hpp"
#include "bench/native/native_coders.hpp"
#include "cli/analysis/baseline_coders.hpp"
#include "entropy/planes.hpp"

namespace bitsnap::bench {
namespace {

constexpr int kLevel = 3;

void xor_bytes(const std::byte* a, const std::byte* b, std::size_t size, std::byte* out) noexcept {
  for (std::size_t i = 0; i < size; ++i) out[i] = a[i] ^ b[i];
}

class BitxWorker final : public CoderWorker {
 public:
  explicit BitxWorker(std::unique_ptr<CoderWorker> worker) : worker_(std::move(worker)) {}

  Result<std::optional<std::size_t>> encode(const CoderChunk& chunk, ByteSpan out) override {
    const std::size_t width = element_size(chunk.dtype);
    const std::size_t elements = chunk.data.size() / width;
    const auto planes = planes_of(elements, width);
    xor_bytes(chunk.data.data(), chunk.base.data(), chunk.data.size(), xored_.data());
    entropy::rotated_split_planes(xored_.data(), elements, width, planes.data());
    std::size_t used = width * sizeof(std::uint32_t);
    for (std::size_t k = 0; k < width; ++k) {
      BITSNAP_ASSIGN(const auto size, worker_->encode(bytes_of({planes[k], elements}), out.subspan(used)));
      store_le(out.data() + k * sizeof(std::uint32_t), static_cast<std::uint32_t>(size.value()));
      used += *size;
    }
    return used;
  }

  Result<void> decode(const CoderChunk& chunk, ConstByteSpan payload, ByteSpan out) override {
    const std::size_t width = element_size(chunk.dtype);
    const std::size_t elements = out.size() / width;
    const auto planes = planes_of(elements, width);
    std::size_t used = width * sizeof(std::uint32_t);
    for (std::size_t k = 0; k < width; ++k) {
      const auto size = load_le<std::uint32_t>(payload.data() + k * sizeof(std::uint32_t));
      BITSNAP_TRY(worker_->decode(bytes_of({}), payload.subspan(used, size), {planes[k], elements}));
      used += size;
    }
    entropy::rotated_merge_planes(planes.data(), elements, width, xored_.data());
    xor_bytes(xored_.data(), chunk.base.data(), out.size(), out.data());
    return {};
  }

 private:
  static CoderChunk bytes_of(ConstByteSpan plane) noexcept { return {.dtype = DType::u8, .data = plane, .base = {}}; }

  std::array<std::byte*, entropy::kMaxElementSize> planes_of(std::size_t elements, std::size_t width) {
    if (planes_.size() < elements * width) {
      xored_.resize(elements * width);
      planes_.resize(elements * width);
    }
    std::array<std::byte*, entropy::kMaxElementSize> planes{};
    for (std::size_t k = 0; k < width; ++k) planes[k] = planes_.data() + k * elements;
    return planes;
  }

  std::unique_ptr<CoderWorker> worker_;
  std::vector<std::byte> xored_;
  std::vector<std::byte> planes_;
};

class BitxCoder final : public Coder {
 public:
  std::string name() const override { return "bitx"; }
  bool uses_base() const noexcept override { return true; }
  bool accepts(DType dtype) const noexcept override { return element_size(dtype) >= 2; }
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return element_size(dtype) * (sizeof(std::uint32_t) + zstd_->max_encoded_size(DType::u8, elements));
  }
  std::unique_ptr<CoderWorker> make_worker() const override {
    return std::make_unique<BitxWorker>(zstd_->make_worker());
  }

 private:
  CoderPointer zstd_ = cli::make_zstd_coder(kLevel);
};

}  // namespace

CoderPointer make_bitx_coder() { return std::make_shared<BitxCoder>(); }

}  // namespace bitsnap::bench
