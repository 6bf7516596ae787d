// Packing and unpacking the sections of an index.
#include "container/section.hpp"

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/try.hpp"
#include "container/packed_bytes.hpp"

namespace bitsnap::container {
namespace {

constexpr std::array<std::string_view, kSectionKinds> kNames = {"content", "encoding", "chunk table", "parameters",
                                                                "safetensors header"};

struct SectionEntry {
  SectionKind kind = SectionKind::content;
  SectionEncoding encoding = SectionEncoding::stored;
  std::uint64_t stored_bytes = 0;
  std::uint64_t raw_bytes = 0;

  [[nodiscard]] std::string_view name() const noexcept { return kNames[static_cast<std::size_t>(kind) - 1]; }
};

std::string section_name(const SectionEntry& entry) { return fmt::format("section {}", entry.name()); }

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
  if (entry.encoding == SectionEncoding::zstd) {
    Result<void> possible = check_packed_size(entry.stored_bytes, entry.raw_bytes);
    if (!possible) return tl::unexpected(std::move(possible).error().within(section_name(entry)));
    return {};
  }
  if (entry.stored_bytes == entry.raw_bytes) return {};
  return fail(ErrorKind::corrupt, fmt::format("section {}: stored uncompressed with {} bytes, but its raw size is {}",
                                              entry.name(), entry.stored_bytes, entry.raw_bytes));
}

Result<std::vector<std::byte>> unpack(const SectionEntry& entry, ConstByteSpan stored) {
  if (entry.encoding == SectionEncoding::stored) return std::vector<std::byte>(stored.begin(), stored.end());
  Result<std::vector<std::byte>> raw = unpack_bytes(stored, entry.raw_bytes);
  if (!raw) return tl::unexpected(std::move(raw).error().within(section_name(entry)));
  return raw;
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
      Result<std::vector<std::byte>> smaller = pack_bytes(*raw, static_cast<int>(packing));
      if (!smaller) return tl::unexpected(std::move(smaller).error().within("index"));
      packed = std::move(*smaller);
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
