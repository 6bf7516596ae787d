// The checksums of a ZIP archive, and how they are corrected after the contents of stored entries have changed, as a
// tensor's do that was quantized.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "interop/container/file_bytes.hpp"
#include "interop/zip/zip_directory.hpp"

namespace bitsnap::interop {

// CRC-32 as ZIP, gzip and PNG use it, with the reflected polynomial 0xEDB88320: of the bytes whose checksum is
// `before`, followed by `bytes`. The checksum of no bytes is 0.
[[nodiscard]] std::uint32_t crc32(ConstByteSpan bytes, std::uint32_t before = 0) noexcept;

struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Four bytes to write.
struct ZipPatch {
  std::uint64_t offset = 0;
  std::array<std::byte, 4> bytes{};
};

// What to write so that the archive in `bytes` states the checksums of the stored entries that a range of `changed`
// touches. `entries` is what read_zip_directory() returns for this archive, before or after the change. Reads each
// of the touched entries once. Patches by offset; none for a checksum that is right.
[[nodiscard]] Result<std::vector<ZipPatch>> correct_zip_checksums(const FileBytes& bytes,
                                                                  std::span<const ZipEntry> entries,
                                                                  std::span<const ByteRange> changed);

}  // namespace bitsnap::interop
