// Builds snapshot files by hand, for tests. Whatever they contain, their hashes and id are correct, so that a reader
// gets as far as the rule that the test breaks. Also in-memory files that log what is read from them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "container/layout.hpp"
#include "os/file_system.hpp"

namespace bitsnap::container {

using Bytes = std::vector<std::byte>;

[[nodiscard]] Bytes bytes_of(std::string_view text);

struct RawSection {
  std::uint32_t kind = 0;
  std::uint32_t encoding = 0;
  Bytes stored;
  std::uint64_t raw_bytes = 0;
};

// The index bytes of these sections, unchecked.
[[nodiscard]] Bytes join_sections(const std::vector<RawSection>& sections);

// Header, payloads, index and a matching footer.
[[nodiscard]] Bytes join_file(ConstByteSpan payloads, ConstByteSpan index, const SnapshotId& id);

struct RawFile {
  std::string content = R"({"tensors":[]})";
  std::string encoding = "{}";
  std::vector<ChunkEntry> chunks;
  Bytes payloads;  // from byte 64 on
  std::optional<Bytes> parameters;
  std::optional<std::string> safetensors_header;

  // Appends a payload and an entry for it. The reference is valid until the next call.
  ChunkEntry& add_chunk(std::uint16_t codec, ConstByteSpan payload, ConstByteSpan decoded);
  [[nodiscard]] SnapshotId id() const;
  [[nodiscard]] std::vector<RawSection> sections() const;
  [[nodiscard]] Bytes seal() const { return join_file(payloads, join_sections(sections()), id()); }
};

// The reads from a MemoryFile, which shares it. Thread-safe.
class ReadLog {
 public:
  void add(std::uint64_t offset, std::uint64_t size);
  void clear();
  // Offsets and sizes in the order of the reads.
  [[nodiscard]] std::vector<std::pair<std::uint64_t, std::uint64_t>> reads() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> reads_;
};

class MemoryFile final : public os::RandomAccessFile {
 public:
  MemoryFile(std::string path, Bytes bytes, std::shared_ptr<ReadLog> log = nullptr)
      : path_(std::move(path)), bytes_(std::move(bytes)), log_(std::move(log)) {}

  Result<void> read_at(std::uint64_t offset, ByteSpan out) const override;
  std::uint64_t size_bytes() const noexcept override { return bytes_.size(); }
  const std::string& path() const noexcept override { return path_; }

 private:
  std::string path_;
  Bytes bytes_;
  std::shared_ptr<ReadLog> log_;
};

}  // namespace bitsnap::container
