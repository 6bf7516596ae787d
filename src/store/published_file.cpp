// PublishedFile: where a read finds the bytes.
#include "store/published_file.hpp"

#include "base/try.hpp"

namespace bitsnap::store {

bool is_same_file(const os::FileInfo& a, const os::FileInfo& b) noexcept {
  return a.is_regular && b.is_regular && a.size_bytes == b.size_bytes && a.file_id == b.file_id &&
         a.modified_ns == b.modified_ns;
}

Result<void> PublishedFile::read_at(std::uint64_t offset, ByteSpan out) const {
  if (std::shared_ptr<const Blob> blob = blob_.lock()) return blob_file(std::move(blob), name_)->read_at(offset, out);
  BITSNAP_ASSIGN(const os::RandomAccessFile* const disk, on_disk());
  return disk->read_at(offset, out);
}

Result<const os::RandomAccessFile*> PublishedFile::on_disk() const {
  const std::lock_guard lock(mutex_);
  if (disk_ == nullptr) {
    BITSNAP_ASSIGN(const os::FileInfo now, files_->stat(path_));
    if (!is_same_file(now, info_)) {
      return fail(ErrorKind::not_found, path_ + ": the file was removed or replaced while it was being read");
    }
    BITSNAP_ASSIGN(disk_, files_->open(path_));
  }
  return disk_.get();
}

}  // namespace bitsnap::store
