// Blob: the bytes of a file in memory. A BlobWriter gathers them piece by piece and never moves them; the finished Blob
// is immutable and shared.
//
// Any number of threads may read a Blob. It lives as long as anyone holds it. A BlobWriter belongs to one thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "os/file_system.hpp"
#include "os/memory.hpp"

namespace bitsnap::store {

class Blob {
 public:
  // Size of every piece but the last, which may be shorter. Pieces are large because each is a memory mapping, and a
  // process may have only some ten thousand mappings.
  static constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] std::size_t pieces() const noexcept { return pieces_.size(); }
  // Precondition: number < pieces(). The file is the pieces in order.
  [[nodiscard]] ConstByteSpan piece(std::size_t number) const noexcept;
  // Precondition: the range lies within the blob.
  void copy(std::uint64_t offset, ByteSpan out) const noexcept;

 private:
  friend class BlobWriter;
  Blob() = default;

  std::vector<os::Pages> pieces_;
  std::uint64_t size_bytes_ = 0;
};

// Makes a blob readable as a file with this name.
[[nodiscard]] std::unique_ptr<os::RandomAccessFile> blob_file(std::shared_ptr<const Blob> blob, std::string name);

// A file that is written to memory only.
class BlobWriter final : public os::WritableFile {
 public:
  explicit BlobWriter(std::string name) : name_(std::move(name)) {}

  // Returns resource_exhausted if memory runs out.
  Result<void> append(ConstByteSpan bytes) override;
  // Memory survives no crash, so there is nothing to sync.
  Result<void> sync() override { return usable("sync"); }
  Result<void> close() override;
  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  const std::string& path() const noexcept override { return name_; }

  // The written bytes after close(); nullptr before close() and after a failure.
  [[nodiscard]] const std::shared_ptr<const Blob>& blob() const noexcept { return blob_; }

 private:
  [[nodiscard]] Result<void> usable(std::string_view operation) const;

  Result<void> gather(ConstByteSpan bytes);

  const std::string name_;
  Blob gathered_;
  std::uint64_t size_bytes_ = 0;
  std::shared_ptr<const Blob> blob_;
  std::optional<Error> error_;
};

}  // namespace bitsnap::store
