// PublishedFile: a file of the store that is read from memory while somebody holds its bytes there, and from the disk
// afterwards. Does not own the bytes in memory. Any number of threads may read it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "os/file_system.hpp"
#include "store/blob.hpp"

namespace bitsnap::store {

// Whether both describe the same regular file, unchanged.
[[nodiscard]] bool is_same_file(const os::FileInfo& a, const os::FileInfo& b) noexcept;

class PublishedFile final : public os::RandomAccessFile {
 public:
  // `path` and `info`: the file on disk. Reads return not_found if the bytes have left memory and the file on disk is
  // no longer the one of `info`.
  PublishedFile(const std::shared_ptr<const Blob>& blob, std::string name, std::shared_ptr<os::FileSystem> files,
                std::string path, const os::FileInfo& info)
      : blob_(blob), name_(std::move(name)), files_(std::move(files)), path_(std::move(path)), info_(info) {}

  Result<void> read_at(std::uint64_t offset, ByteSpan out) const override;
  std::uint64_t size_bytes() const noexcept override { return info_.size_bytes; }
  const std::string& path() const noexcept override { return name_; }

 private:
  Result<const os::RandomAccessFile*> on_disk() const;

  const std::weak_ptr<const Blob> blob_;
  const std::string name_;
  const std::shared_ptr<os::FileSystem> files_;
  const std::string path_;
  const os::FileInfo info_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<os::RandomAccessFile> disk_;  // nullptr: not opened yet
};

}  // namespace bitsnap::store
