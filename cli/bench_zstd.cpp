// zstd at one level, its contexts reused from chunk to chunk.
#include <zstd.h>

#include <fmt/format.h>

#include "cli/bench_general.hpp"
#include "cli/file_paths.hpp"

namespace bitsnap::cli {

namespace {

class ZstdState final : public ByteCoderState {
 public:
  explicit ZstdState(int level) : level_(level), encoder_(ZSTD_createCCtx()), decoder_(ZSTD_createDCtx()) {}
  ~ZstdState() override {
    ZSTD_freeCCtx(encoder_);
    ZSTD_freeDCtx(decoder_);
  }
  ZstdState(const ZstdState&) = delete;
  ZstdState& operator=(const ZstdState&) = delete;

  Result<std::size_t> encode(std::span<const std::byte> in, std::span<std::byte> out) override {
    if (encoder_ == nullptr) {
      return fail(ErrorKind::resource_exhausted, "zstd: no memory for a context");
    }
    const std::size_t size = ZSTD_compressCCtx(encoder_, out.data(), out.size(), in.data(), in.size(), level_);
    if (ZSTD_isError(size) != 0) {
      return fail(ErrorKind::internal, fmt::format("zstd: {}", ZSTD_getErrorName(size)));
    }
    return size;
  }
  Result<void> decode(std::span<const std::byte> in, std::span<std::byte> out) override {
    if (decoder_ == nullptr) {
      return fail(ErrorKind::resource_exhausted, "zstd: no memory for a context");
    }
    const std::size_t size = ZSTD_decompressDCtx(decoder_, out.data(), out.size(), in.data(), in.size());
    if (ZSTD_isError(size) != 0 || size != out.size()) {
      return fail(ErrorKind::internal, "zstd: decoding failed");
    }
    return {};
  }

 private:
  int level_;
  ZSTD_CCtx* encoder_;
  ZSTD_DCtx* decoder_;
};

class ZstdCoder final : public ByteCoder {
 public:
  explicit ZstdCoder(int level) : level_(level) {}

  std::string name() const override { return fmt::format("zstd-{}", level_); }
  std::size_t max_encoded_size(std::size_t bytes) const noexcept override { return ZSTD_compressBound(bytes); }
  std::unique_ptr<ByteCoderState> make_state() const override { return std::make_unique<ZstdState>(level_); }

 private:
  int level_;
};

}  // namespace

std::shared_ptr<const ByteCoder> make_zstd_coder(int level) { return std::make_shared<ZstdCoder>(level); }

}  // namespace bitsnap::cli
