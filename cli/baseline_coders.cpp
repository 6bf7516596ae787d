// memcpy, zstd, lz4 and bzip2 behind the interface Coder.
#include "cli/baseline_coders.hpp"

#include <bzlib.h>
#include <lz4.h>
#include <zstd.h>

#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "cli/command.hpp"

namespace bitsnap::cli {

namespace {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

// A coder of bytes: dtype and base make no difference to it.
class ByteCoder final : public Coder {
 public:
  using SizeBound = std::size_t (*)(std::size_t bytes);
  using MakeWorker = std::function<std::unique_ptr<CoderWorker>()>;

  ByteCoder(std::string name, SizeBound size_bound, MakeWorker make_worker)
      : name_(std::move(name)), size_bound_(size_bound), make_worker_(std::move(make_worker)) {}

  std::string name() const override { return name_; }
  bool accepts(DType) const noexcept override { return true; }
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    return size_bound_(elements * element_size(dtype));
  }
  std::unique_ptr<CoderWorker> make_worker() const override { return make_worker_(); }

 private:
  std::string name_;
  SizeBound size_bound_;
  MakeWorker make_worker_;
};

class MemcpyWorker final : public CoderWorker {
 public:
  Result<std::optional<std::size_t>> encode(const CoderChunk& chunk, Bytes out) override {
    std::memcpy(out.data(), chunk.data.data(), chunk.data.size());
    return chunk.data.size();
  }
  Result<void> decode(const CoderChunk&, ConstBytes payload, Bytes out) override {
    std::memcpy(out.data(), payload.data(), out.size());
    return {};
  }
};

// Contexts are reused from chunk to chunk.
class ZstdWorker final : public CoderWorker {
 public:
  explicit ZstdWorker(int level) : level_(level) {}

  Result<std::optional<std::size_t>> encode(const CoderChunk& chunk, Bytes out) override {
    if (encoder_ == nullptr) return fail(ErrorKind::resource_exhausted, "zstd: no memory for a context");
    const std::size_t size =
        ZSTD_compressCCtx(encoder_.get(), out.data(), out.size(), chunk.data.data(), chunk.data.size(), level_);
    if (ZSTD_isError(size) != 0) return fail(ErrorKind::internal, fmt::format("zstd: {}", ZSTD_getErrorName(size)));
    return size;
  }
  Result<void> decode(const CoderChunk&, ConstBytes payload, Bytes out) override {
    if (decoder_ == nullptr) return fail(ErrorKind::resource_exhausted, "zstd: no memory for a context");
    if (ZSTD_decompressDCtx(decoder_.get(), out.data(), out.size(), payload.data(), payload.size()) != out.size()) {
      return fail(ErrorKind::internal, "zstd: decoding failed");
    }
    return {};
  }

 private:
  struct FreeContext {
    void operator()(ZSTD_CCtx* context) const noexcept { ZSTD_freeCCtx(context); }
    void operator()(ZSTD_DCtx* context) const noexcept { ZSTD_freeDCtx(context); }
  };

  int level_;
  std::unique_ptr<ZSTD_CCtx, FreeContext> encoder_{ZSTD_createCCtx()};
  std::unique_ptr<ZSTD_DCtx, FreeContext> decoder_{ZSTD_createDCtx()};
};

class Lz4Worker final : public CoderWorker {
 public:
  Result<std::optional<std::size_t>> encode(const CoderChunk& chunk, Bytes out) override {
    const int size =
        LZ4_compress_fast_extState(memory_.data(), chars(chunk.data), chars(out), length(chunk.data), length(out), 1);
    if (size <= 0) return fail(ErrorKind::internal, "lz4: encoding failed");
    return static_cast<std::size_t>(size);
  }
  Result<void> decode(const CoderChunk&, ConstBytes payload, Bytes out) override {
    if (LZ4_decompress_safe(chars(payload), chars(out), length(payload), length(out)) != length(out)) {
      return fail(ErrorKind::internal, "lz4: decoding failed");
    }
    return {};
  }

 private:
  static const char* chars(ConstBytes bytes) noexcept { return reinterpret_cast<const char*>(bytes.data()); }
  static char* chars(Bytes bytes) noexcept { return reinterpret_cast<char*>(bytes.data()); }
  static int length(ConstBytes bytes) noexcept { return static_cast<int>(bytes.size()); }  // a chunk has 2 MiB at most

  std::vector<std::max_align_t> memory_ =
      std::vector<std::max_align_t>(static_cast<std::size_t>(LZ4_sizeofState()) / sizeof(std::max_align_t) + 1);
};

class Bzip2Worker final : public CoderWorker {
 public:
  Result<std::optional<std::size_t>> encode(const CoderChunk& chunk, Bytes out) override {
    auto size = static_cast<unsigned>(out.size());
    if (BZ2_bzBuffToBuffCompress(reinterpret_cast<char*>(out.data()), &size, mutable_chars(chunk.data),
                                 static_cast<unsigned>(chunk.data.size()), kLevel, 0, 0) != BZ_OK) {
      return fail(ErrorKind::internal, "bzip2: encoding failed");
    }
    return size;
  }
  Result<void> decode(const CoderChunk&, ConstBytes payload, Bytes out) override {
    auto size = static_cast<unsigned>(out.size());
    if (BZ2_bzBuffToBuffDecompress(reinterpret_cast<char*>(out.data()), &size, mutable_chars(payload),
                                   static_cast<unsigned>(payload.size()), 0, 0) != BZ_OK ||
        size != out.size()) {
      return fail(ErrorKind::internal, "bzip2: decoding failed");
    }
    return {};
  }

 private:
  static constexpr int kLevel = 9;

  // libbz2 only reads its input, but its interface is older than const.
  static char* mutable_chars(ConstBytes bytes) {
    return const_cast<char*>(reinterpret_cast<const char*>(bytes.data()));
  }
};

std::size_t same_size(std::size_t bytes) noexcept { return bytes; }
std::size_t lz4_bound(std::size_t bytes) noexcept {
  return static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(bytes)));
}
// As the manual of bzip2 states.
std::size_t bzip2_bound(std::size_t bytes) noexcept { return bytes + bytes / 100 + 600; }

}  // namespace

std::shared_ptr<const Coder> make_memcpy_coder() {
  return std::make_shared<ByteCoder>("memcpy", same_size, std::make_unique<MemcpyWorker>);
}
std::shared_ptr<const Coder> make_zstd_coder(int level) {
  return std::make_shared<ByteCoder>(fmt::format("zstd-{}", level), ZSTD_compressBound,
                                     [level] { return std::make_unique<ZstdWorker>(level); });
}
std::shared_ptr<const Coder> make_lz4_coder() {
  return std::make_shared<ByteCoder>("lz4", lz4_bound, std::make_unique<Lz4Worker>);
}
std::shared_ptr<const Coder> make_bzip2_coder() {
  return std::make_shared<ByteCoder>("bzip2-9", bzip2_bound, std::make_unique<Bzip2Worker>);
}

Coders baseline_coders() { return {make_zstd_coder(1), make_zstd_coder(3), make_lz4_coder(), make_bzip2_coder()}; }

}  // namespace bitsnap::cli
