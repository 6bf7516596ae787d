// The entries of a ZIP archive, as its central directory lists them: for archives whose entries are stored, as those of
// torch and numpy. Zip64 is read; nothing is decompressed or decrypted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "interop/container/file_bytes.hpp"

namespace bitsnap::interop {

struct ZipEntry {
  std::string name;          // as in the archive: any bytes
  std::uint64_t offset = 0;  // of its data in the archive
  std::uint64_t bytes = 0;   // of its data as stored
  bool is_stored = false;    // neither compressed nor encrypted: the data are the file
  std::uint32_t crc32 = 0;   // as stated
  // Where the archive states the checksum: offsets of 4 bytes each, in the directory, and in the local header, in the
  // data descriptor or in both.
  std::vector<std::uint64_t> crc32_at;
};

// From the first bytes of a file.
[[nodiscard]] bool looks_like_zip(std::string_view start) noexcept;

// All of `bytes` must be one archive on one disk. corrupt if entries overlap each other or the directory, if a local
// header disagrees with the directory, if there are bytes before the first entry or after the end record, or if two
// entries have the same name. Bytes between entries are allowed, because writers align data with them.
// resource_exhausted if the directory exceeds `limits.index_bytes`. Entries by offset.
[[nodiscard]] Result<std::vector<ZipEntry>> read_zip_directory(const FileBytes& bytes, const DecodeLimits& limits);

// Where the archive that ends at the end of `bytes` begins, from its end record: a file may be several archives in a
// row. Reads up to 64 KiB and checks nothing else. An archive may have as few as 22 bytes, so a caller that repeats
// this call must limit the number of archives.
[[nodiscard]] Result<std::uint64_t> find_zip_start(const FileBytes& bytes);

}  // namespace bitsnap::interop
