// The end record of a ZIP archive, with the zip64 records before it: where the central directory lies, and where the
// archive begins. interop/zip/spec.md, "End record".
#pragma once

#include <cstdint>

#include <bitsnap/error.hpp>

#include "interop/container/file_bytes.hpp"

namespace bitsnap::interop {

// All offsets count from the first byte of the file, which need not be the first byte of the archive.
struct ZipEndRecord {
  std::uint64_t start = 0;             // of the archive
  std::uint64_t directory_offset = 0;  // at least `start`
  std::uint64_t directory_bytes = 0;   // the directory lies in the file
  std::uint64_t entries = 0;           // at most what fits in the directory
};

// corrupt unless the file ends with an end record whose directory ends where the end records begin.
[[nodiscard]] Result<ZipEndRecord> read_zip_end_record(const FileBytes& bytes);

}  // namespace bitsnap::interop
