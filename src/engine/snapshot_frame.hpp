// SnapshotFrame: a snapshot file without its payloads: the header, the index and the footer. With the decoded state of
// a slot, it is all that a restore needs. Immutable after read().
#pragma once

#include <cstdint>
#include <vector>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "os/file_system.hpp"

namespace bitsnap::engine {

struct SnapshotFrame {
  std::uint64_t file_bytes = 0;
  std::uint64_t index_offset = 0;
  std::vector<std::byte> header;
  std::vector<std::byte> index;  // and footer: the file from `index_offset` on

  [[nodiscard]] static Result<SnapshotFrame> read(const os::RandomAccessFile& file);
};

}  // namespace bitsnap::engine
