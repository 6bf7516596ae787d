// Blob: gathering bytes in pieces, and reading them as a file.
#include "store/blob.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"

namespace bitsnap::store {
namespace {

class BlobFile final : public os::RandomAccessFile {
 public:
  BlobFile(std::shared_ptr<const Blob> blob, std::string name) : blob_(std::move(blob)), name_(std::move(name)) {}

  Result<void> read_at(std::uint64_t offset, ByteSpan out) const override {
    const std::uint64_t size = blob_->size_bytes();
    if (offset > size || out.size() > size - offset) {
      return fail(ErrorKind::truncated,
                  fmt::format("read {} at offset {}: expected {} bytes, found {} before the end of the file", name_,
                              offset, out.size(), offset > size ? 0 : size - offset));
    }
    blob_->copy(offset, out);
    return {};
  }

  std::uint64_t size_bytes() const noexcept override { return blob_->size_bytes(); }
  const std::string& path() const noexcept override { return name_; }

 private:
  const std::shared_ptr<const Blob> blob_;
  const std::string name_;
};

}  // namespace

ConstByteSpan Blob::piece(std::size_t number) const noexcept {
  const std::uint64_t before = std::uint64_t{number} * kPieceBytes;
  return {pieces_[number].get(), static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, size_bytes_ - before))};
}

void Blob::copy(std::uint64_t offset, ByteSpan out) const noexcept {
  while (!out.empty()) {
    const ConstByteSpan from =
        piece(static_cast<std::size_t>(offset / kPieceBytes)).subspan(static_cast<std::size_t>(offset % kPieceBytes));
    const std::size_t size = std::min(from.size(), out.size());
    std::memcpy(out.data(), from.data(), size);
    out = out.subspan(size);
    offset += size;
  }
}

std::unique_ptr<os::RandomAccessFile> blob_file(std::shared_ptr<const Blob> blob, std::string name) {
  return std::make_unique<BlobFile>(std::move(blob), std::move(name));
}

Result<void> BlobWriter::usable(std::string_view operation) const {
  if (error_) return tl::unexpected(*error_);
  if (blob_ != nullptr)
    return fail(ErrorKind::invalid_argument, fmt::format("{} {}: the file is closed", operation, name_));
  return {};
}

Result<void> BlobWriter::gather(ConstByteSpan bytes) {
  return no_throw("file in memory", [&]() -> Result<void> {
    std::uint64_t& size_bytes = gathered_.size_bytes_;
    const std::uint64_t offset = size_bytes;
    const std::size_t asked_for = bytes.size();
    while (!bytes.empty()) {
      const auto used = static_cast<std::size_t>(size_bytes % Blob::kPieceBytes);
      if (used == 0) {
        os::Pages piece = os::allocate_pages(Blob::kPieceBytes);
        if (piece == nullptr) {
          return fail(ErrorKind::resource_exhausted,
                      fmt::format("file in memory: cannot allocate {} bytes at offset {}", asked_for, offset));
        }
        gathered_.pieces_.push_back(std::move(piece));
      }
      const std::size_t size = std::min(Blob::kPieceBytes - used, bytes.size());
      std::memcpy(gathered_.pieces_.back().get() + used, bytes.data(), size);
      size_bytes += size;
      bytes = bytes.subspan(size);
    }
    return {};
  });
}

Result<void> BlobWriter::append(ConstByteSpan bytes) {
  BITSNAP_TRY(usable("append to"));
  size_bytes_ += bytes.size();
  Result<void> appended = gather(bytes);
  if (!appended) error_ = std::move(appended).error().within(name_);
  return usable("append to");
}

Result<void> BlobWriter::close() {
  if (error_) return tl::unexpected(*error_);
  if (blob_ != nullptr) return {};
  auto finished = no_throw("file in memory", [&]() -> Result<std::shared_ptr<const Blob>> {
    // Frees the unused end of the last piece: there are many small files.
    if (!gathered_.pieces_.empty()) {
      os::shrink_pages(gathered_.pieces_.back(), gathered_.piece(gathered_.pieces() - 1).size());
    }
    return std::make_shared<const Blob>(std::move(gathered_));
  });
  if (!finished) {
    error_ = std::move(finished).error().within(name_);
    return tl::unexpected(*error_);
  }
  blob_ = std::move(*finished);
  return {};
}

}  // namespace bitsnap::store
