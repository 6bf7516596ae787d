// zstd frames.
#include "container/packed_bytes.hpp"

#include <fmt/format.h>
#include <zstd.h>

#include "base/checked.hpp"
#include "base/try.hpp"
#include "codec/zstd/zstd_contexts.hpp"

namespace bitsnap::container {
namespace {

constexpr std::uint32_t kZstdMagic = 0xFD2FB528;
// A zstd block unpacks to at most 128 KiB and has at least a header of three bytes and one byte of content.
constexpr std::uint64_t kZstdBlockBytes = std::uint64_t{128} << 10;
constexpr std::uint64_t kLeastZstdBlockBytes = 4;

}  // namespace

Result<std::vector<std::byte>> pack_bytes(ConstByteSpan raw, int level) {
  ZSTD_CCtx* context = codec::zstd_compression_context();
  if (context == nullptr) return fail(ErrorKind::resource_exhausted, "no memory for a zstd context");
  std::vector<std::byte> stored(ZSTD_compressBound(raw.size()));
  const std::size_t size = ZSTD_compressCCtx(context, stored.data(), stored.size(), raw.data(), raw.size(), level);
  if (ZSTD_isError(size) != 0) {
    return fail(ErrorKind::resource_exhausted, fmt::format("zstd: {}", ZSTD_getErrorName(size)));
  }
  stored.resize(size < raw.size() ? size : 0);
  return stored;
}

Result<void> check_packed_size(std::uint64_t stored_bytes, std::uint64_t raw_bytes) {
  const std::uint64_t blocks = divide_up(stored_bytes, kLeastZstdBlockBytes);
  if (divide_up(raw_bytes, kZstdBlockBytes) <= blocks) return {};
  return fail(ErrorKind::corrupt,
              fmt::format("{} stored bytes cannot unpack to the raw size of {}", stored_bytes, raw_bytes));
}

Result<std::vector<std::byte>> unpack_bytes(ConstByteSpan stored, std::uint64_t raw_bytes) {
  // libzstd would also accept several frames, skippable ones, and those of old formats.
  if (stored.size() < sizeof(kZstdMagic) || load_le<std::uint32_t>(stored.data()) != kZstdMagic ||
      ZSTD_findFrameCompressedSize(stored.data(), stored.size()) != stored.size()) {
    return fail(ErrorKind::corrupt, "not one zstd frame");
  }
  ZSTD_DCtx* context = codec::zstd_decompression_context();
  if (context == nullptr) return fail(ErrorKind::resource_exhausted, "no memory for a zstd context");
  std::vector<std::byte> raw(static_cast<std::size_t>(raw_bytes));
  const std::size_t size = ZSTD_decompressDCtx(context, raw.data(), raw.size(), stored.data(), stored.size());
  if (ZSTD_isError(size) != 0) {
    return fail(ErrorKind::corrupt,
                fmt::format("does not unpack to its raw size of {}: {}", raw.size(), ZSTD_getErrorName(size)));
  }
  if (size != raw.size()) {
    return fail(ErrorKind::corrupt, fmt::format("unpacks to {} bytes, but its raw size is {}", size, raw.size()));
  }
  return raw;
}

}  // namespace bitsnap::container
