// The fixed-size parts of a snapshot file: docs/spec/snapshot.md, "Header", "Footer", "Index" and "Chunk table".
//
// Plain data, with functions to parse and serialize it; no I/O. parse_* check everything that the part alone shows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

#include "base/bytes.hpp"

namespace bitsnap::container {

inline constexpr std::size_t kHeaderBytes = 64;
inline constexpr std::size_t kFooterBytes = 64;
inline constexpr std::size_t kChunkEntryBytes = 40;
inline constexpr std::size_t kSectionEntryBytes = 24;
inline constexpr std::uint16_t kNoParameters = 0xFFFF;
inline constexpr std::uint8_t kNoInput = 0xFF;
inline constexpr std::size_t kInputsPerChunk = 4;
inline constexpr std::uint32_t kMaxDepth = 64;

// On disk: never change or reuse.
enum class SectionKind : std::uint32_t {
  content = 1,
  encoding = 2,
  chunk_table = 3,
  parameters = 4,
  safetensors_header = 5,
};

// On disk: never change or reuse.
enum class SectionEncoding : std::uint32_t { stored = 0, zstd = 1 };

struct Footer {
  std::uint64_t index_offset = 0;
  std::uint64_t index_bytes = 0;
  std::uint64_t index_hash = 0;
  SnapshotId id;

  friend bool operator==(const Footer&, const Footer&) = default;
};

struct ChunkEntry {
  std::uint64_t offset = 0;
  std::uint64_t stored_hash = 0;
  std::uint64_t decoded_hash = 0;
  std::uint32_t stored_bytes = 0;
  std::uint16_t codec = 0;
  std::uint16_t parameters = kNoParameters;  // index into the stream's list
  std::array<std::uint8_t, kInputsPerChunk> inputs = {kNoInput, kNoInput, kNoInput,
                                                      kNoInput};  // into the stream's list
  std::uint8_t depth = 0;
};

[[nodiscard]] std::array<std::byte, kHeaderBytes> serialize_header() noexcept;
// Precondition: 64 bytes.
[[nodiscard]] Result<void> parse_header(ConstByteSpan bytes);

[[nodiscard]] std::array<std::byte, kFooterBytes> serialize_footer(const Footer& footer) noexcept;
// Precondition: 64 bytes. `file_bytes` is the size of the whole file.
[[nodiscard]] Result<Footer> parse_footer(ConstByteSpan bytes, std::uint64_t file_bytes);

void serialize_chunk_entry(const ChunkEntry& entry, std::byte* to) noexcept;
// Precondition: 40 bytes.
[[nodiscard]] Result<ChunkEntry> parse_chunk_entry(ConstByteSpan bytes);

}  // namespace bitsnap::container
