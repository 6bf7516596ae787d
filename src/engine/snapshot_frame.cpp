// Reads the frame of a snapshot file.
#include "engine/snapshot_frame.hpp"

#include "base/try.hpp"
#include "container/file_reader.hpp"

namespace bitsnap::engine {

Result<SnapshotFrame> SnapshotFrame::read(const os::RandomAccessFile& file) {
  BITSNAP_ASSIGN(const container::Footer footer, container::read_footer(file));
  SnapshotFrame frame{.file_bytes = file.size_bytes(), .index_offset = footer.index_offset, .header = {}, .index = {}};
  frame.header.resize(container::kHeaderBytes);
  frame.index.resize(static_cast<std::size_t>(frame.file_bytes - frame.index_offset));
  BITSNAP_TRY(file.read_at(0, frame.header));
  BITSNAP_TRY(file.read_at(frame.index_offset, frame.index));
  return frame;
}

}  // namespace bitsnap::engine
