// A file's bytes in memory: gathered piece by piece without ever moving what is there, then immutable and shared.
//
// A Blob may be read by any number of threads, and lives as long as anybody holds it. A BlobBuilder and a BlobWriter
// belong to one thread at a time.
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
  // Of every piece but the last, which is as long as what is left.
  // Mappings are what a process has some ten thousands of.
  static constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] std::size_t pieces() const noexcept { return pieces_.size(); }
  // Precondition: there is such a piece. In their order they are the file.
  [[nodiscard]] ConstByteSpan piece(std::size_t number) const noexcept;
  // Precondition: the range lies inside.
  void copy(std::uint64_t offset, ByteSpan out) const noexcept;

 private:
  friend class BlobBuilder;
  Blob() = default;

  std::vector<os::Pages> pieces_;
  std::uint64_t size_bytes_ = 0;
};

class BlobBuilder {
 public:
  // resource_exhausted where there is no memory; what was appended before is still there.
  [[nodiscard]] Result<void> append(ConstByteSpan bytes);
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return blob_.size_bytes_; }
  // What was appended; the builder is empty again.
  [[nodiscard]] Result<std::shared_ptr<const Blob>> finish();

 private:
  Blob blob_;
};

// Reads a blob as a file of this name.
[[nodiscard]] std::unique_ptr<os::RandomAccessFile> blob_file(std::shared_ptr<const Blob> blob, std::string name);

// A file that is written to memory alone.
class BlobWriter final : public os::WritableFile {
 public:
  explicit BlobWriter(std::string name) : name_(std::move(name)) {}

  Result<void> append(ConstByteSpan bytes) override;
  // Memory survives no crash: there is nothing to do.
  Result<void> sync() override { return usable("sync"); }
  Result<void> close() override;
  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  const std::string& path() const noexcept override { return name_; }

  // What was written, after close(); nullptr before, and where something failed.
  [[nodiscard]] const std::shared_ptr<const Blob>& blob() const noexcept { return blob_; }

 private:
  [[nodiscard]] Result<void> usable(std::string_view operation) const;

  const std::string name_;
  BlobBuilder builder_;
  std::uint64_t size_bytes_ = 0;
  std::shared_ptr<const Blob> blob_;
  bool is_closed_ = false;
  std::optional<Error> error_;
};

}  // namespace bitsnap::store
