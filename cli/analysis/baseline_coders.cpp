// memcpy, zstd, lz4 and bzip2 behind the interface Coder.
#include "cli/analysis/baseline_coders.hpp"

#include <bzlib.h>
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
// libbz2 only reads its input, but its interface is older than const.
char* chars(ConstBytes bytes) noexcept { return const_cast<char*>(reinterpret_cast<const char*>(bytes.data())); }
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

constexpr int kBzip2Level = 9;

ByteFunctions bzip2_functions() {
  return {
      [](ConstBytes in, Bytes out) -> std::size_t {
        auto size = static_cast<unsigned>(out.size());
        const auto in_size = static_cast<unsigned>(in.size());
        return BZ2_bzBuffToBuffCompress(chars(out), &size, chars(in), in_size, kBzip2Level, 0, 0) == BZ_OK ? size : 0;
      },
      [](ConstBytes in, Bytes out) {
        auto size = static_cast<unsigned>(out.size());
        const auto in_size = static_cast<unsigned>(in.size());
        return BZ2_bzBuffToBuffDecompress(chars(out), &size, chars(in), in_size, 0, 0) == BZ_OK && size == out.size();
      }};
}

std::size_t same_size(std::size_t bytes) noexcept { return bytes; }
std::size_t lz4_bound(std::size_t bytes) noexcept {
  return static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(bytes)));
}
// As the manual of bzip2 states.
std::size_t bzip2_bound(std::size_t bytes) noexcept { return bytes + bytes / 100 + 600; }

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
std::shared_ptr<const Coder> make_bzip2_coder() {
  return std::make_shared<ByteCoder>("bzip2-9", bzip2_bound, bzip2_functions);
}

Coders baseline_coders() { return {make_zstd_coder(1), make_zstd_coder(3), make_lz4_coder(), make_bzip2_coder()}; }

}  // namespace bitsnap::cli
