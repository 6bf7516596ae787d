// BitX's method (ZipLLM): the XOR with the base, exponents and mantissas apart, each through zstd -3. A reconstruction
// from its description: the sign travels with the mantissa, and each byte plane is a frame of its own.
#include <array>
#include <cstdint>
#include <utility>

#include "bench/native/native_engine.hpp"
#include "cli/bench_general.hpp"
#include "entropy/planes.hpp"

namespace bitsnap::bench {
namespace {

constexpr int kLevel = 3;

void xor_bytes(const std::byte* a, const std::byte* b, std::size_t size, std::byte* out) noexcept {
  for (std::size_t i = 0; i < size; ++i) out[i] = a[i] ^ b[i];
}

class BitxWorker final : public Worker {
 public:
  BitxWorker(std::unique_ptr<cli::ByteCoderState> state, std::size_t width)
      : state_(std::move(state)), width_(width), xored_(kChunkElements * width), planes_(kChunkElements * width) {}

  Result<std::optional<std::size_t>> encode(const Chunk& chunk, ByteSpan out) override {
    const std::size_t elements = chunk.data.size() / width_;
    xor_bytes(chunk.data.data(), chunk.base.data(), chunk.data.size(), xored_.data());
    const auto planes = planes_of(elements);
    entropy::rotated_split_planes(xored_.data(), elements, width_, planes.data());
    std::size_t used = width_ * sizeof(std::uint32_t);
    for (std::size_t k = 0; k < width_; ++k) {
      BITSNAP_ASSIGN(const std::size_t size, state_->encode({planes[k], elements}, out.subspan(used)));
      store_le(out.data() + k * sizeof(std::uint32_t), static_cast<std::uint32_t>(size));
      used += size;
    }
    return used;
  }

  Result<void> decode(const Chunk& chunk, ConstByteSpan payload, ByteSpan out) override {
    const std::size_t elements = out.size() / width_;
    const auto planes = planes_of(elements);
    std::size_t used = width_ * sizeof(std::uint32_t);
    for (std::size_t k = 0; k < width_; ++k) {
      const auto size = load_le<std::uint32_t>(payload.data() + k * sizeof(std::uint32_t));
      BITSNAP_TRY(state_->decode(payload.subspan(used, size), {planes[k], elements}));
      used += size;
    }
    entropy::rotated_merge_planes(planes.data(), elements, width_, xored_.data());
    xor_bytes(xored_.data(), chunk.base.data(), out.size(), out.data());
    return {};
  }

 private:
  std::array<std::byte*, entropy::kMaxElementSize> planes_of(std::size_t elements) noexcept {
    std::array<std::byte*, entropy::kMaxElementSize> planes{};
    for (std::size_t k = 0; k < width_; ++k) planes[k] = planes_.data() + k * elements;
    return planes;
  }

  std::unique_ptr<cli::ByteCoderState> state_;
  std::size_t width_;
  std::vector<std::byte> xored_;
  std::vector<std::byte> planes_;
};

class BitxEngine final : public Engine {
 public:
  std::string name() const override { return "bitx"; }
  bool uses_base() const noexcept override { return true; }
  bool accepts(DType dtype) const noexcept override { return element_size(dtype) >= 2; }
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return element_size(dtype) * (sizeof(std::uint32_t) + coder_->max_encoded_size(elements));
  }
  std::unique_ptr<Worker> make_worker(DType dtype, Role) const override {
    return std::make_unique<BitxWorker>(coder_->make_state(), element_size(dtype));
  }

 private:
  std::shared_ptr<const cli::ByteCoder> coder_ = cli::make_zstd_coder(kLevel);
};

}  // namespace

void add_bitx_engines(Engines& engines) { engines.push_back(std::make_unique<BitxEngine>()); }

}  // namespace bitsnap::bench
