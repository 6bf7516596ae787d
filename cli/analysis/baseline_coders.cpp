// memcpy, zstd and lz4 behind the interface Coder.
#include "cli/analysis/baseline_coders.hpp"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace bitsnap::cli {

namespace {

class ByteWorker final : public CoderWorker {
 public:
  ByteWorker(std::string coder, ByteFunctions functions) : coder_(std::move(coder)), functions_(std::move(functions)) {}

  Result<std::optional<std::size_t>> encode(const CoderChunk& chunk, Bytes out) override {
    const std::size_t size = functions_.encode(chunk.data, out);
    if (size == 0) return tl::unexpected(Error(ErrorKind::internal, coder_ + ": encoding failed"));
    return size;
  }
  Result<void> decode(const CoderChunk&, ConstBytes payload, Bytes out) override {
    if (functions_.decode(payload, out)) return {};
    return tl::unexpected(Error(ErrorKind::internal, coder_ + ": decoding failed"));
  }

 private:
  std::string coder_;
  ByteFunctions functions_;
};

char* chars(Bytes bytes) noexcept { return reinterpret_cast<char*>(bytes.data()); }
const char* chars(ConstBytes bytes) noexcept { return reinterpret_cast<const char*>(bytes.data()); }
int length(ConstBytes bytes) noexcept { return static_cast<int>(bytes.size()); }  // a chunk has 2 MiB at most

ByteFunctions memcpy_functions() {
  return {[](ConstBytes in, Bytes out) {
            std::memcpy(out.data(), in.data(), in.size());
            return in.size();
          },
          [](ConstBytes in, Bytes out) {
            std::memcpy(out.data(), in.data(), out.size());
            return true;
          }};
}

// A context that was not allocated makes zstd fail.
ByteFunctions zstd_functions(int level) {
  const std::shared_ptr<ZSTD_CCtx> encoder(ZSTD_createCCtx(), ZSTD_freeCCtx);
  const std::shared_ptr<ZSTD_DCtx> decoder(ZSTD_createDCtx(), ZSTD_freeDCtx);
  return {[encoder, level](ConstBytes in, Bytes out) -> std::size_t {
            if (encoder == nullptr) return 0;
            const std::size_t size =
                ZSTD_compressCCtx(encoder.get(), out.data(), out.size(), in.data(), in.size(), level);
            return ZSTD_isError(size) != 0 ? 0 : size;
          },
          [decoder](ConstBytes in, Bytes out) {
            return decoder != nullptr &&
                   ZSTD_decompressDCtx(decoder.get(), out.data(), out.size(), in.data(), in.size()) == out.size();
          }};
}

ByteFunctions lz4_functions() {
  std::vector<std::max_align_t> memory(static_cast<std::size_t>(LZ4_sizeofState()) / sizeof(std::max_align_t) + 1);
  return {[memory = std::move(memory)](ConstBytes in, Bytes out) mutable {
            const int size =
                LZ4_compress_fast_extState(memory.data(), chars(in), chars(out), length(in), length(out), 1);
            return static_cast<std::size_t>(std::max(0, size));
          },
          [](ConstBytes in, Bytes out) {
            return LZ4_decompress_safe(chars(in), chars(out), length(in), length(out)) == length(out);
          }};
}

std::size_t same_size(std::size_t bytes) noexcept { return bytes; }
std::size_t lz4_bound(std::size_t bytes) noexcept {
  return static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(bytes)));
}

}  // namespace

std::unique_ptr<CoderWorker> ByteCoder::make_worker() const {
  return std::make_unique<ByteWorker>(name_, make_functions_());
}

std::shared_ptr<const Coder> make_memcpy_coder() {
  return std::make_shared<ByteCoder>("memcpy", same_size, memcpy_functions);
}
std::shared_ptr<const Coder> make_zstd_coder(int level) {
  return std::make_shared<ByteCoder>(fmt::format("zstd-{}", level), ZSTD_compressBound,
                                     [level] { return zstd_functions(level); });
}
std::shared_ptr<const Coder> make_lz4_coder() { return std::make_shared<ByteCoder>("lz4", lz4_bound, lz4_functions); }

Coders baseline_coders() { return {make_zstd_coder(1), make_zstd_coder(3), make_lz4_coder()}; }

}  // namespace bitsnap::cli
