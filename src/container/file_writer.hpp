// Writes a snapshot file as a stream: header, payloads in the order of the calls, index, footer. One thread at a time.
//
// The caller owns the file, syncs it and names it.
#pragma once

#include <cstdint>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "container/index.hpp"
#include "os/file_system.hpp"

namespace bitsnap::container {

class FileWriter {
 public:
  explicit FileWriter(os::WritableFile& file) noexcept : file_(file) {}

  // Writes the header. Called once, first.
  [[nodiscard]] Result<void> begin();

  // Appends one payload and fills in the entry's offset, stored size and stored hash.
  [[nodiscard]] Result<void> append_payload(ConstByteSpan payload, ChunkEntry& entry);

  // Writes index and footer, and sets index.id. Called once, last.
  [[nodiscard]] Result<void> finish(Index& index);

  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return offset_; }

 private:
  os::WritableFile& file_;
  std::uint64_t offset_ = 0;
};

}  // namespace bitsnap::container
