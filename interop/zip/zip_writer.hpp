// Writes a ZIP archive of stored entries, front to back, as torch's own writer lays it out: contents begin at multiples
// of 64 bytes, and checksums follow them. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "interop/zip/zip_layout.hpp"

namespace bitsnap::interop {

class ZipWriter {
 public:
  using Sink = std::function<Result<void>(ConstByteSpan)>;

  // `sink` takes the bytes of the archive in their order. Sizes and offsets from `large` on take 64 bits; a smaller one
  // is for tests.
  explicit ZipWriter(Sink sink, std::uint64_t large = kZipIn64) : sink_(std::move(sink)), large_(large) {}

  // The next entry, of `bytes` bytes; append() is called with all of them before anything else.
  [[nodiscard]] Result<void> begin(std::string name, std::uint64_t bytes);
  [[nodiscard]] Result<void> append(ConstByteSpan bytes);
  // An entry whose bytes are there.
  [[nodiscard]] Result<void> add(std::string name, ConstByteSpan bytes);
  // The directory, after the last entry.
  [[nodiscard]] Result<void> finish();

  // Written so far.
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return at_; }

 private:
  struct Entry {
    std::string name;
    std::uint64_t offset = 0;  // of its local header
    std::uint64_t bytes = 0;
    std::uint32_t checksum = 0;
  };

  [[nodiscard]] Result<void> write(ConstByteSpan bytes);
  [[nodiscard]] Result<void> end();
  // What a field of 32 bits says.
  [[nodiscard]] std::uint32_t in_32_bits(std::uint64_t value) const noexcept {
    return value >= large_ ? kZipIn64 : static_cast<std::uint32_t>(value);
  }

  Sink sink_;
  std::uint64_t large_;
  std::vector<Entry> entries_;
  std::uint64_t at_ = 0;
  std::uint64_t left_ = 0;  // bytes of the last entry that are to come
  bool is_open_ = false;    // the last entry has no checksum yet
};

}  // namespace bitsnap::interop
