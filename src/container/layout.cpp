// Header, footer and chunk entries: docs/spec/snapshot.md. Order of checks: magic, version, hash, ranges.
#include "container/layout.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <bitsnap/version.hpp>

#include "base/checked.hpp"
#include "base/hash.hpp"

namespace bitsnap::container {
namespace {

constexpr std::array<std::uint8_t, 8> kHeaderMagic = {0x89, 0x42, 0x53, 0x4E, 0x41, 0x50, 0x0D, 0x0A};
constexpr std::array<std::uint8_t, 8> kFooterMagic = {0x0D, 0x0A, 0x50, 0x41, 0x4E, 0x53, 0x42, 0x89};

bool all_zero(ConstByteSpan bytes) noexcept {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

bool starts_with(ConstByteSpan bytes, const std::array<std::uint8_t, 8>& magic) noexcept {
  return std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

}  // namespace

std::array<std::byte, kHeaderBytes> serialize_header() noexcept {
  std::array<std::byte, kHeaderBytes> bytes{};
  std::memcpy(bytes.data(), kHeaderMagic.data(), kHeaderMagic.size());
  store_le<std::uint32_t>(bytes.data() + 8, kFormatVersion);
  store_le<std::uint64_t>(bytes.data() + 56, hash64(ConstByteSpan(bytes).first(56)));
  return bytes;
}

Result<void> parse_header(ConstByteSpan bytes) {
  if (!starts_with(bytes, kHeaderMagic))
    return fail(ErrorKind::corrupt, "header: not a snapshot file; it is another kind of file, or damaged");
  const auto format = load_le<std::uint32_t>(bytes.data() + 8);
  if (format != kFormatVersion) {
    return fail(ErrorKind::unsupported,
                fmt::format("header: the file has format version {}, this version of bitsnap supports {}", format,
                            kFormatVersion));
  }
  const auto expected = load_le<std::uint64_t>(bytes.data() + 56);
  const std::uint64_t found = hash64(bytes.first(56));
  if (expected != found) {
    return fail(ErrorKind::corrupt, fmt::format("header: hash is {:016x}, expected {:016x}", found, expected));
  }
  if (!all_zero(bytes.subspan(12, 4)) || !all_zero(bytes.subspan(24, 32))) {
    return fail(ErrorKind::corrupt, "header: reserved bytes are not zero");
  }
  const auto features = load_le<std::uint64_t>(bytes.data() + 16);
  if (features != 0) {
    return fail(ErrorKind::unsupported, fmt::format("header: unknown required features {:#x}", features));
  }
  return {};
}

std::array<std::byte, kFooterBytes> serialize_footer(const Footer& footer) noexcept {
  std::array<std::byte, kFooterBytes> bytes{};
  store_le(bytes.data(), footer.index_offset);
  store_le(bytes.data() + 8, footer.index_bytes);
  store_le(bytes.data() + 16, footer.index_hash);
  store_le(bytes.data() + 24, footer.id.low);
  store_le(bytes.data() + 32, footer.id.high);
  store_le(bytes.data() + 48, hash64(ConstByteSpan(bytes).first(48)));
  std::memcpy(bytes.data() + 56, kFooterMagic.data(), kFooterMagic.size());
  return bytes;
}

Result<Footer> parse_footer(ConstByteSpan bytes, std::uint64_t file_bytes) {
  // Usually the file was truncated.
  if (!starts_with(bytes.subspan(56), kFooterMagic)) {
    return fail(
        ErrorKind::truncated,
        fmt::format("footer: the file of {} bytes does not end with a footer; it was truncated or never finished",
                    file_bytes));
  }
  const auto expected = load_le<std::uint64_t>(bytes.data() + 48);
  const std::uint64_t found = hash64(bytes.first(48));
  if (expected != found) {
    return fail(ErrorKind::corrupt, fmt::format("footer: hash is {:016x}, expected {:016x}", found, expected));
  }
  if (!all_zero(bytes.subspan(40, 8))) return fail(ErrorKind::corrupt, "footer: reserved bytes are not zero");
  Footer footer;
  footer.index_offset = load_le<std::uint64_t>(bytes.data());
  footer.index_bytes = load_le<std::uint64_t>(bytes.data() + 8);
  footer.index_hash = load_le<std::uint64_t>(bytes.data() + 16);
  footer.id.low = load_le<std::uint64_t>(bytes.data() + 24);
  footer.id.high = load_le<std::uint64_t>(bytes.data() + 32);
  const auto end = checked_add(footer.index_offset, footer.index_bytes);
  if (footer.index_offset < kHeaderBytes || !end || *end != file_bytes - kFooterBytes) {
    return fail(
        ErrorKind::corrupt,
        fmt::format("footer: index of {} bytes at offset {} is not between header and footer of the file of {} bytes",
                    footer.index_bytes, footer.index_offset, file_bytes));
  }
  return footer;
}

void serialize_chunk_entry(const ChunkEntry& entry, std::byte* to) noexcept {
  std::memset(to, 0, kChunkEntryBytes);
  store_le(to, entry.offset);
  store_le(to + 8, entry.stored_hash);
  store_le(to + 16, entry.decoded_hash);
  store_le(to + 24, entry.stored_bytes);
  store_le(to + 28, entry.codec);
  store_le(to + 30, entry.parameters);
  std::memcpy(to + 32, entry.inputs.data(), entry.inputs.size());
  store_le(to + 36, entry.depth);
}

Result<ChunkEntry> parse_chunk_entry(ConstByteSpan bytes) {
  ChunkEntry entry;
  entry.offset = load_le<std::uint64_t>(bytes.data());
  entry.stored_hash = load_le<std::uint64_t>(bytes.data() + 8);
  entry.decoded_hash = load_le<std::uint64_t>(bytes.data() + 16);
  entry.stored_bytes = load_le<std::uint32_t>(bytes.data() + 24);
  entry.codec = load_le<std::uint16_t>(bytes.data() + 28);
  entry.parameters = load_le<std::uint16_t>(bytes.data() + 30);
  std::memcpy(entry.inputs.data(), bytes.data() + 32, entry.inputs.size());
  entry.depth = load_le<std::uint8_t>(bytes.data() + 36);
  if (!all_zero(bytes.subspan(37, 3))) return fail(ErrorKind::corrupt, "reserved bytes of the entry are not zero");
  if (entry.stored_bytes == 0 && entry.offset != 0) {
    return fail(ErrorKind::corrupt, fmt::format("an empty payload has offset {}, expected 0", entry.offset));
  }
  for (std::size_t i = 1; i < kInputsPerChunk; ++i) {
    if (entry.inputs[i] != kNoInput && entry.inputs[i - 1] == kNoInput) {
      return fail(ErrorKind::corrupt, fmt::format("input {} is used and input {} is not", i, i - 1));
    }
  }
  if (entry.depth > kMaxDepth) {
    return fail(ErrorKind::corrupt, fmt::format("depth is {}, at most {} is allowed", entry.depth, kMaxDepth));
  }
  return entry;
}

}  // namespace bitsnap::container
