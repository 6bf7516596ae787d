// Packing and unpacking the sections of an index.
#include "container/section.hpp"

#include <string_view>

#include <fmt/format.h>
#include <zstd.h>

#include "base/checked.hpp"
#include "base/try.hpp"
#include "codec/zstd/zstd_contexts.hpp"

namespace bitsnap::container {
namespace {

constexpr std::uint32_t kZstdMagic = 0xFD2FB528;
// A zstd block unpacks to at most 128 KiB and has at least a header of three bytes and one byte of content.
constexpr std::uint64_t kZstdBlockBytes = std::uint64_t{128} << 10;
constexpr std::uint64_t kLeastZstdBlockBytes = 4;

constexpr std::array<std::string_view, kSectionKinds> kNames = {"content", "encoding", "chunk table", "parameters",
                                                                "safetensors header"};

struct SectionEntry {
  SectionKind kind = SectionKind::content;
  SectionEncoding encoding = SectionEncoding::stored;
  std::uint64_t stored_bytes = 0;
  std::uint64_t raw_bytes = 0;

  [[nodiscard]] std::string_view name() const noexcept { return kNames[static_cast<std::size_t>(kind) - 1]; }
};

Result<SectionEntry> read_entry(ByteCursor& cursor, std::uint32_t previous_kind) {
  SectionEntry entry;
  BITSNAP_ASSIGN(const auto kind, cursor.read<std::uint32_t>("kind of a section"));
  BITSNAP_ASSIGN(const auto encoding, cursor.read<std::uint32_t>("encoding of a section"));
  BITSNAP_ASSIGN(entry.stored_bytes, cursor.read<std::uint64_t>("stored size of a section"));
  BITSNAP_ASSIGN(entry.raw_bytes, cursor.read<std::uint64_t>("raw size of a section"));
  if (kind > kSectionKinds) return fail(ErrorKind::unsupported, fmt::format("unknown section kind {}", kind));
  if (kind <= previous_kind) {
    return fail(ErrorKind::corrupt,
                fmt::format("sections are out of order: kind {} follows kind {}", kind, previous_kind));
  }
  if (encoding > 1) {
    return fail(ErrorKind::unsupported, fmt::format("section {}: unknown encoding {}", kNames[kind - 1], encoding));
  }
  entry.kind = static_cast<SectionKind>(kind);
  entry.encoding = static_cast<SectionEncoding>(encoding);
  return entry;
}

Result<void> check_sizes(const SectionEntry& entry) {
  if (entry.encoding == SectionEncoding::stored) {
    if (entry.stored_bytes == entry.raw_bytes) return {};
    return fail(ErrorKind::corrupt, fmt::format("section {}: stored uncompressed with {} bytes, but its raw size is {}",
                                                entry.name(), entry.stored_bytes, entry.raw_bytes));
  }
  const std::uint64_t blocks = divide_up(entry.stored_bytes, kLeastZstdBlockBytes);
  if (divide_up(entry.raw_bytes, kZstdBlockBytes) > blocks) {
    return fail(ErrorKind::corrupt, fmt::format("section {}: {} stored bytes cannot unpack to the raw size of {}",
                                                entry.name(), entry.stored_bytes, entry.raw_bytes));
  }
  return {};
}

Result<std::vector<std::byte>> unpack(const SectionEntry& entry, ConstByteSpan stored) {
  if (entry.encoding == SectionEncoding::stored) return std::vector<std::byte>(stored.begin(), stored.end());
  // libzstd would also accept several frames, skippable ones, and those of old formats.
  if (stored.size() < sizeof(kZstdMagic) || load_le<std::uint32_t>(stored.data()) != kZstdMagic ||
      ZSTD_findFrameCompressedSize(stored.data(), stored.size()) != stored.size()) {
    return fail(ErrorKind::corrupt, fmt::format("section {}: not one zstd frame", entry.name()));
  }
  ZSTD_DCtx* context = codec::zstd_decompression_context();
  if (context == nullptr) return fail(ErrorKind::resource_exhausted, "index: no memory for a zstd context");
  std::vector<std::byte> raw(static_cast<std::size_t>(entry.raw_bytes));
  const std::size_t size = ZSTD_decompressDCtx(context, raw.data(), raw.size(), stored.data(), stored.size());
  if (ZSTD_isError(size) != 0) {
    return fail(ErrorKind::corrupt, fmt::format("section {}: does not unpack to its raw size of {}: {}", entry.name(),
                                                raw.size(), ZSTD_getErrorName(size)));
  }
  if (size != raw.size()) {
    return fail(ErrorKind::corrupt,
                fmt::format("section {}: unpacks to {} bytes, but its raw size is {}", entry.name(), size, raw.size()));
  }
  return raw;
}

// Returns an empty vector if compression does not make the section smaller.
Result<std::vector<std::byte>> compress(ConstByteSpan raw, int level) {
  ZSTD_CCtx* context = codec::zstd_compression_context();
  if (context == nullptr) return fail(ErrorKind::resource_exhausted, "index: no memory for a zstd context");
  std::vector<std::byte> stored(ZSTD_compressBound(raw.size()));
  const std::size_t size = ZSTD_compressCCtx(context, stored.data(), stored.size(), raw.data(), raw.size(), level);
  if (ZSTD_isError(size) != 0) {
    return fail(ErrorKind::resource_exhausted, fmt::format("index: zstd: {}", ZSTD_getErrorName(size)));
  }
  stored.resize(size < raw.size() ? size : 0);
  return stored;
}

}  // namespace

Result<std::vector<std::byte>> pack_sections(const Sections& sections, Packing packing) {
  std::vector<std::byte> head(8);
  std::vector<std::byte> body;
  std::uint32_t count = 0;
  for (std::uint32_t kind = 1; kind <= kSectionKinds; ++kind) {
    const auto& raw = sections.at(static_cast<SectionKind>(kind));
    if (!raw) continue;
    ++count;
    std::vector<std::byte> packed;
    if (packing != Packing::plain) {
      BITSNAP_ASSIGN(packed, compress(*raw, static_cast<int>(packing)));
    }
    const std::vector<std::byte>& stored = packed.empty() ? *raw : packed;
    std::array<std::byte, kSectionEntryBytes> entry;
    store_le<std::uint32_t>(entry.data(), kind);
    store_le(entry.data() + 4,
             static_cast<std::uint32_t>(packed.empty() ? SectionEncoding::stored : SectionEncoding::zstd));
    store_le<std::uint64_t>(entry.data() + 8, stored.size());
    store_le<std::uint64_t>(entry.data() + 16, raw->size());
    head.insert(head.end(), entry.begin(), entry.end());
    body.insert(body.end(), stored.begin(), stored.end());
  }
  store_le<std::uint32_t>(head.data(), count);
  head.insert(head.end(), body.begin(), body.end());
  return head;
}

Result<Sections> unpack_sections(ConstByteSpan index, const DecodeLimits& limits) {
  ByteCursor cursor(index);
  BITSNAP_ASSIGN(const auto count, cursor.read<std::uint32_t>("number of sections"));
  BITSNAP_ASSIGN(const auto reserved, cursor.read<std::uint32_t>("reserved bytes"));
  if (reserved != 0) return fail(ErrorKind::corrupt, "reserved bytes are not zero");
  // There are few kinds, and they ascend, so this ends early however large the count is.
  std::vector<SectionEntry> entries;
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t previous = entries.empty() ? 0 : static_cast<std::uint32_t>(entries.back().kind);
    BITSNAP_ASSIGN(const SectionEntry entry, read_entry(cursor, previous));
    BITSNAP_TRY(check_sizes(entry));
    const auto sum = checked_add(total, entry.raw_bytes);
    if (!sum || *sum > limits.index_bytes) {
      return fail(ErrorKind::resource_exhausted,
                  fmt::format("section {}: its raw size of {} bytes makes the index exceed the limit of {} bytes",
                              entry.name(), entry.raw_bytes, limits.index_bytes));
    }
    total = *sum;
    entries.push_back(entry);
  }
  Sections sections;
  for (const SectionEntry& entry : entries) {
    BITSNAP_ASSIGN(const ConstByteSpan stored, cursor.take(entry.stored_bytes, entry.name()));
    BITSNAP_ASSIGN(sections.at(entry.kind), unpack(entry, stored));
  }
  if (cursor.remaining() != 0) {
    return fail(ErrorKind::corrupt, fmt::format("{} bytes follow the last section", cursor.remaining()));
  }
  for (const SectionKind kind : {SectionKind::content, SectionKind::encoding, SectionKind::chunk_table}) {
    if (!sections.at(kind)) {
      return fail(ErrorKind::corrupt, fmt::format("section {} is missing", kNames[static_cast<std::size_t>(kind) - 1]));
    }
  }
  return sections;
}

}  // namespace bitsnap::container
