// lz4 at its default speed.
#include <lz4.h>

#include <vector>

#include "cli/bench_general.hpp"
#include "cli/file_paths.hpp"

namespace bitsnap::cli {

namespace {

class Lz4State final : public ByteCoderState {
 public:
  Result<std::size_t> encode(std::span<const std::byte> in, std::span<std::byte> out) override {
    const int size = LZ4_compress_fast_extState(memory_.data(), reinterpret_cast<const char*>(in.data()),
                                                reinterpret_cast<char*>(out.data()), static_cast<int>(in.size()),
                                                static_cast<int>(out.size()), 1);
    if (size <= 0) {
      return fail(ErrorKind::internal, "lz4: encoding failed");
    }
    return static_cast<std::size_t>(size);
  }
  Result<void> decode(std::span<const std::byte> in, std::span<std::byte> out) override {
    const int size = LZ4_decompress_safe(reinterpret_cast<const char*>(in.data()), reinterpret_cast<char*>(out.data()),
                                         static_cast<int>(in.size()), static_cast<int>(out.size()));
    if (size < 0 || static_cast<std::size_t>(size) != out.size()) {
      return fail(ErrorKind::internal, "lz4: decoding failed");
    }
    return {};
  }

 private:
  std::vector<std::max_align_t> memory_ =
      std::vector<std::max_align_t>(static_cast<std::size_t>(LZ4_sizeofState()) / sizeof(std::max_align_t) + 1);
};

class Lz4Coder final : public ByteCoder {
 public:
  std::string name() const override { return "lz4"; }
  std::size_t max_encoded_size(std::size_t bytes) const noexcept override {
    return static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(bytes)));  // a chunk is at most 2 MiB
  }
  std::unique_ptr<ByteCoderState> make_state() const override { return std::make_unique<Lz4State>(); }
};

}  // namespace

std::shared_ptr<const ByteCoder> make_lz4_coder() { return std::make_shared<Lz4Coder>(); }

}  // namespace bitsnap::cli
