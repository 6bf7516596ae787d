// Opens a snapshot file, parses its index, and reads payloads. Does not decode: codec ids are just numbers here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "base/bytes.hpp"
#include "container/index.hpp"
#include "os/file_system.hpp"

namespace bitsnap::container {

// Immutable after open; thread-safe.
class FileReader {
 public:
  [[nodiscard]] static Result<std::unique_ptr<FileReader>> open(std::unique_ptr<os::RandomAccessFile> file,
                                                                const DecodeLimits& limits);

  [[nodiscard]] const Index& index() const noexcept { return index_; }
  // Distinguishes this file from all others, even those with the same content.
  [[nodiscard]] const Footer& footer() const noexcept { return footer_; }
  [[nodiscard]] std::uint64_t file_bytes() const noexcept { return file_bytes_; }
  [[nodiscard]] const std::string& path() const noexcept { return file_->path(); }

  [[nodiscard]] const os::RandomAccessFile& file() const noexcept { return *file_; }

  // Fills `out` (of the entry's stored size) with a chunk's payload and checks its stored hash.
  [[nodiscard]] Result<void> read_payload(const ChunkEntry& entry, ByteSpan out) const;

  // Reads the JSON of the content from the file again, for writing an index with the same id.
  [[nodiscard]] Result<std::string> read_content_text(const DecodeLimits& limits) const;

  // The typed tree, checked; nullopt if the file has none.
  [[nodiscard]] Result<std::optional<Value>> tree(const DecodeLimits& limits) const;

 private:
  FileReader() = default;

  std::unique_ptr<os::RandomAccessFile> file_;
  std::uint64_t file_bytes_ = 0;
  Footer footer_;
  Index index_;
};

// Reads and checks header and footer alone.
[[nodiscard]] Result<Footer> read_footer(const os::RandomAccessFile& file);

}  // namespace bitsnap::container
