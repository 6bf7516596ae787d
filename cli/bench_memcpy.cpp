// Copying: what no engine can be faster than.
#include <cstring>

#include "cli/bench_general.hpp"

namespace bitsnap::cli {

namespace {

class MemcpyState final : public ByteCoderState {
 public:
  Result<std::size_t> encode(std::span<const std::byte> in, std::span<std::byte> out) override {
    std::memcpy(out.data(), in.data(), in.size());
    return in.size();
  }
  Result<void> decode(std::span<const std::byte> in, std::span<std::byte> out) override {
    std::memcpy(out.data(), in.data(), out.size());
    return {};
  }
};

class MemcpyCoder final : public ByteCoder {
 public:
  std::string name() const override { return "memcpy"; }
  std::size_t max_encoded_size(std::size_t bytes) const noexcept override { return bytes; }
  std::unique_ptr<ByteCoderState> make_state() const override { return std::make_unique<MemcpyState>(); }
};

}  // namespace

std::shared_ptr<const ByteCoder> make_memcpy_coder() { return std::make_shared<MemcpyCoder>(); }

}  // namespace bitsnap::cli
