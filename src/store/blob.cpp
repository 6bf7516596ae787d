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

Result<void> BlobBuilder::append(ConstByteSpan bytes) {
  return no_throw("file in memory", [&]() -> Result<void> {
    // Allocates all pieces first, so that a failure leaves the bytes as they were.
    const std::uint64_t needed = blob_.size_bytes_ + bytes.size();
    while (std::uint64_t{blob_.pieces_.size()} * Blob::kPieceBytes < needed) {
      os::Pages piece = os::allocate_pages(Blob::kPieceBytes);
      if (piece != nullptr) {
        blob_.pieces_.push_back(std::move(piece));
        continue;
      }
      return fail(ErrorKind::resource_exhausted, fmt::format("file in memory: cannot allocate {} bytes at offset {}",
                                                             bytes.size(), blob_.size_bytes_));
    }
    while (!bytes.empty()) {
      const auto used = static_cast<std::size_t>(blob_.size_bytes_ % Blob::kPieceBytes);
      std::byte* const to = blob_.pieces_[static_cast<std::size_t>(blob_.size_bytes_ / Blob::kPieceBytes)].get() + used;
      const std::size_t size = std::min(Blob::kPieceBytes - used, bytes.size());
      std::memcpy(to, bytes.data(), size);
      blob_.size_bytes_ += size;
      bytes = bytes.subspan(size);
    }
    return {};
  });
}

Result<std::shared_ptr<const Blob>> BlobBuilder::finish() {
  return no_throw("file in memory", [&]() -> Result<std::shared_ptr<const Blob>> {
    std::shared_ptr<Blob> whole(new Blob);
    // Frees pieces that a failed append left, and the unused end of the last piece: there are many small files.
    blob_.pieces_.resize(static_cast<std::size_t>((blob_.size_bytes_ + Blob::kPieceBytes - 1) / Blob::kPieceBytes));
    if (!blob_.pieces_.empty()) {
      os::shrink_pages(blob_.pieces_.back(), blob_.piece(blob_.pieces_.size() - 1).size());
    }
    whole->pieces_ = std::exchange(blob_.pieces_, {});
    whole->size_bytes_ = std::exchange(blob_.size_bytes_, 0);
    return whole;
  });
}

std::unique_ptr<os::RandomAccessFile> blob_file(std::shared_ptr<const Blob> blob, std::string name) {
  return std::make_unique<BlobFile>(std::move(blob), std::move(name));
}

Result<void> BlobWriter::usable(std::string_view operation) const {
  if (error_) return tl::unexpected(*error_);
  if (is_closed_) return fail(ErrorKind::invalid_argument, fmt::format("{} {}: the file is closed", operation, name_));
  return {};
}

Result<void> BlobWriter::append(ConstByteSpan bytes) {
  BITSNAP_TRY(usable("append to"));
  size_bytes_ += bytes.size();
  Result<void> appended = builder_.append(bytes);
  if (!appended) error_ = std::move(appended).error().within(name_);
  return usable("append to");
}

Result<void> BlobWriter::close() {
  if (error_) return tl::unexpected(*error_);
  if (is_closed_) return {};
  is_closed_ = true;
  auto finished = builder_.finish();
  if (!finished) {
    error_ = std::move(finished).error().within(name_);
    return tl::unexpected(*error_);
  }
  blob_ = std::move(*finished);
  return {};
}

}  // namespace bitsnap::store
