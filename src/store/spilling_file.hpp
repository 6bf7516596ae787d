// SpillingFile: a file that is written to memory while there is room for it there. When there is none, the bytes move
// to a file on disk, and the rest is written there. The file has the same bytes either way.
//
// Belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "os/file_system.hpp"
#include "store/blob.hpp"

namespace bitsnap::store {

class SpillingFile final : public os::WritableFile {
 public:
  // Whether memory may hold `bytes` bytes of the file. Asked before the file grows to this size. An error says why not.
  using HasRoom = std::function<Result<void>(std::uint64_t bytes)>;
  // Creates the file on disk.
  using Create = std::function<Result<std::unique_ptr<os::WritableFile>>()>;

  // Without `create`, an append for which there is no room fails with the error of `has_room`.
  SpillingFile(std::string name, HasRoom has_room, Create create = nullptr)
      : memory_(std::in_place, std::move(name)), has_room_(std::move(has_room)), create_(std::move(create)) {}

  Result<void> append(ConstByteSpan bytes) override;
  Result<void> sync() override { return file().sync(); }
  Result<void> close() override { return file().close(); }
  std::uint64_t size_bytes() const noexcept override {
    return disk_ != nullptr ? disk_->size_bytes() : memory_->size_bytes();
  }
  const std::string& path() const noexcept override { return disk_ != nullptr ? disk_->path() : memory_->path(); }

  // The file after close(); nullptr if it is on disk.
  [[nodiscard]] std::shared_ptr<const Blob> blob() const noexcept { return memory_ ? memory_->blob() : nullptr; }

 private:
  [[nodiscard]] os::WritableFile& file() noexcept {
    return disk_ != nullptr ? *disk_ : static_cast<os::WritableFile&>(*memory_);
  }
  Result<void> spill();

  std::optional<BlobWriter> memory_;  // nullopt once the file is on disk
  std::unique_ptr<os::WritableFile> disk_;
  const HasRoom has_room_;
  const Create create_;
};

}  // namespace bitsnap::store
