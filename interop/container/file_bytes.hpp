// The bytes of a file, or of a part of one, as the parser of a container reads them. Thread-safe if `read` is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"

namespace bitsnap::interop {

class FileBytes {
 public:
  using Read = std::function<Result<void>(std::uint64_t offset, ByteSpan out)>;

  // `read` fills `out` with the bytes from `offset` on, which lie below `size`.
  FileBytes(std::uint64_t size, Read read) : size_(size), read_(std::make_shared<const Read>(std::move(read))) {}

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  // truncated if the bytes end before.
  [[nodiscard]] Result<void> read_at(std::uint64_t offset, ByteSpan out) const;
  // Precondition: the caller has compared `bytes` with a limit of its own.
  [[nodiscard]] Result<std::string> read_text(std::uint64_t offset, std::uint64_t bytes) const;
  // The bytes [offset, offset + bytes); truncated if there are fewer.
  [[nodiscard]] Result<FileBytes> part(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  FileBytes(std::shared_ptr<const Read> read, std::uint64_t begin, std::uint64_t size)
      : begin_(begin), size_(size), read_(std::move(read)) {}
  [[nodiscard]] Result<void> check(std::uint64_t offset, std::uint64_t bytes) const;

  std::uint64_t begin_ = 0;
  std::uint64_t size_ = 0;
  std::shared_ptr<const Read> read_;
};

}  // namespace bitsnap::interop
