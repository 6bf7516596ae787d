// Files in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "os/file_system.hpp"

namespace bitsnap::os {

// Reads memory of the caller. Keeps `owner` alive.
class MemoryReader final : public RandomAccessFile {
 public:
  // `name`, for messages.
  MemoryReader(std::string name, ConstByteSpan bytes, std::shared_ptr<const void> owner) noexcept
      : name_(std::move(name)), bytes_(bytes), owner_(std::move(owner)) {}

  [[nodiscard]] Result<void> read_at(std::uint64_t offset, ByteSpan out) const override;
  [[nodiscard]] std::uint64_t size_bytes() const noexcept override { return bytes_.size(); }
  [[nodiscard]] const std::string& path() const noexcept override { return name_; }

 private:
  const std::string name_;
  const ConstByteSpan bytes_;
  const std::shared_ptr<const void> owner_;
};

class MemoryWriter final : public WritableFile {
 public:
  explicit MemoryWriter(std::string name) noexcept : name_(std::move(name)) {}

  [[nodiscard]] Result<void> append(ConstByteSpan bytes) override;
  [[nodiscard]] Result<void> sync() override { return {}; }
  [[nodiscard]] Result<void> close() override { return {}; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept override { return bytes_.size(); }
  [[nodiscard]] const std::string& path() const noexcept override { return name_; }

  // What was written.
  [[nodiscard]] std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  const std::string name_;
  std::vector<std::byte> bytes_;
};

}  // namespace bitsnap::os
