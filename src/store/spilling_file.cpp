// SpillingFile: moves the pieces that memory holds to the disk.
#include "store/spilling_file.hpp"

#include "base/try.hpp"

namespace bitsnap::store {

Result<void> SpillingFile::append(ConstByteSpan bytes) {
  if (disk_ == nullptr) {
    if (Result<void> room = has_room_(memory_->size_bytes() + bytes.size()); !room) {
      if (create_ == nullptr) return room;
      BITSNAP_TRY(spill());
    }
  }
  return file().append(bytes);
}

Result<void> SpillingFile::spill() {
  BITSNAP_TRY(memory_->close());
  BITSNAP_ASSIGN(std::unique_ptr<os::WritableFile> disk, create_());
  const Blob& blob = *memory_->blob();
  for (std::size_t i = 0; i < blob.pieces(); ++i) BITSNAP_TRY(disk->append(blob.piece(i)));
  disk_ = std::move(disk);
  memory_.reset();
  return {};
}

}  // namespace bitsnap::store
