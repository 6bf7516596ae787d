// Reads the directory at once, then one local header and one data descriptor for each entry. interop/zip/spec.md
#include "interop/zip/zip_directory.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/zip/zip_layout.hpp"

namespace bitsnap::interop {
namespace {

// The end record of a ZIP archive, with the zip64 records before it (spec.md, "End record"). They are found in the last
// 65,557 bytes of the file. All offsets count from the first byte of the file, which need not be the first byte of the
// archive.
struct ZipEndRecord {
  std::uint64_t start = 0;             // of the archive
  std::uint64_t directory_offset = 0;  // at least `start`
  std::uint64_t directory_bytes = 0;   // the directory lies in the file
  std::uint64_t entries = 0;           // at most what fits in the directory
};

// The fields of an end record or of a zip64 end record.
struct ZipEndFields {
  std::uint32_t disk = 0;
  std::uint32_t directory_disk = 0;
  std::uint64_t disk_entries = 0;
  std::uint64_t entries = 0;
  std::uint64_t directory_bytes = 0;
  std::uint64_t directory_offset = 0;  // from the start of the archive
};

struct PlacedZipEnd {
  std::uint64_t offset = 0;  // of the first of the end records in the file
  ZipEndFields fields;
};

tl::unexpected<Error> bad_zip_end(std::uint64_t offset, std::string_view what) {
  return fail(ErrorKind::corrupt, fmt::format("ZIP end record at {}: {}", offset, what));
}

// The last end record whose comment ends where the file ends.
Result<PlacedZipEnd> find_zip_end(const FileBytes& bytes) {
  constexpr std::uint64_t kMostBytes = kZipEndBytes + 0xffff;
  if (bytes.size() < kZipEndBytes) {
    return fail(ErrorKind::truncated,
                fmt::format("{} bytes, but a ZIP archive has at least {}", bytes.size(), kZipEndBytes));
  }
  const std::uint64_t tail_bytes = std::min(bytes.size(), kMostBytes);
  const std::uint64_t tail_offset = bytes.size() - tail_bytes;
  BITSNAP_ASSIGN(const std::string tail, bytes.read_text(tail_offset, tail_bytes));
  const ConstByteSpan all = as_byte_span(tail);
  for (std::size_t comment_bytes = 0; comment_bytes + kZipEndBytes <= all.size(); ++comment_bytes) {
    const std::byte* at = all.data() + (all.size() - comment_bytes - kZipEndBytes);
    if (load_le<std::uint32_t>(at) != kZipEndSignature || load_le<std::uint16_t>(at + 20) != comment_bytes) continue;
    return PlacedZipEnd{.offset = tail_offset + static_cast<std::uint64_t>(at - all.data()),
                        .fields = {.disk = load_le<std::uint16_t>(at + 4),
                                   .directory_disk = load_le<std::uint16_t>(at + 6),
                                   .disk_entries = load_le<std::uint16_t>(at + 8),
                                   .entries = load_le<std::uint16_t>(at + 10),
                                   .directory_bytes = load_le<std::uint32_t>(at + 12),
                                   .directory_offset = load_le<std::uint32_t>(at + 16)}};
  }
  return fail(ErrorKind::corrupt,
              fmt::format("no ZIP end record ends at {}, the end of the file: not a ZIP archive, or cut off, or "
                          "followed by other bytes",
                          bytes.size()));
}

// Whether a field of the end record says the same as that of the zip64 end record.
constexpr bool zip_fields_agree(std::uint64_t field, std::uint64_t sentinel, std::uint64_t field64) {
  return field == field64 || field == sentinel;
}

// The zip64 end record in place of `end`, if there is a locator before `end`.
Result<std::optional<PlacedZipEnd>> find_zip64_end(const FileBytes& bytes, const PlacedZipEnd& end) {
  if (end.offset < kZip64LocatorBytes + kZip64EndBytes) return std::nullopt;
  std::array<std::byte, kZip64EndBytes + kZip64LocatorBytes> both{};
  const std::uint64_t offset = end.offset - both.size();
  BITSNAP_TRY(bytes.read_at(offset, both));
  const std::byte* record = both.data();
  const std::byte* locator = record + kZip64EndBytes;
  if (load_le<std::uint32_t>(locator) != kZip64LocatorSignature) return std::nullopt;
  // The size leaves out the signature and the size itself.
  if (load_le<std::uint32_t>(record) != kZip64EndSignature ||
      load_le<std::uint64_t>(record + 4) != kZip64EndBytes - 12) {
    return bad_zip_end(offset, "expected a zip64 end record of 56 bytes before its locator");
  }
  const ZipEndFields fields{.disk = load_le<std::uint32_t>(record + 16),
                            .directory_disk = load_le<std::uint32_t>(record + 20),
                            .disk_entries = load_le<std::uint64_t>(record + 24),
                            .entries = load_le<std::uint64_t>(record + 32),
                            .directory_bytes = load_le<std::uint64_t>(record + 40),
                            .directory_offset = load_le<std::uint64_t>(record + 48)};
  const ZipEndFields& old = end.fields;
  if (!zip_fields_agree(old.disk, kZipIn64Short, fields.disk) ||
      !zip_fields_agree(old.directory_disk, kZipIn64Short, fields.directory_disk) ||
      !zip_fields_agree(old.disk_entries, kZipIn64Short, fields.disk_entries) ||
      !zip_fields_agree(old.entries, kZipIn64Short, fields.entries) ||
      !zip_fields_agree(old.directory_bytes, kZipIn64, fields.directory_bytes) ||
      !zip_fields_agree(old.directory_offset, kZipIn64, fields.directory_offset)) {
    return bad_zip_end(end.offset, "it disagrees with the zip64 end record");
  }
  const auto place = checked_add(fields.directory_offset, fields.directory_bytes);
  if (!place || load_le<std::uint64_t>(locator + 8) != *place) {
    return bad_zip_end(offset, "the locator does not point to the end of the directory");
  }
  if (load_le<std::uint32_t>(locator + 4) != 0 || load_le<std::uint32_t>(locator + 16) > 1) {
    return bad_zip_end(offset, "the archive spans several disks");
  }
  return PlacedZipEnd{.offset = offset, .fields = fields};
}

// corrupt unless the file ends with an end record whose directory ends where the end records begin.
Result<ZipEndRecord> read_zip_end_record(const FileBytes& bytes) {
  BITSNAP_ASSIGN(PlacedZipEnd end, find_zip_end(bytes));
  BITSNAP_ASSIGN(const std::optional<PlacedZipEnd> end64, find_zip64_end(bytes, end));
  if (end64) end = *end64;
  const ZipEndFields& fields = end.fields;
  if (fields.disk != 0 || fields.directory_disk != 0 || fields.disk_entries != fields.entries) {
    return bad_zip_end(end.offset, "the archive spans several disks");
  }
  const auto end_in_archive = checked_add(fields.directory_offset, fields.directory_bytes);
  if (!end_in_archive || *end_in_archive > end.offset) {
    return bad_zip_end(end.offset, fmt::format("{} bytes of directory at {} do not fit before it",
                                               fields.directory_bytes, fields.directory_offset));
  }
  if (fields.entries > fields.directory_bytes / kZipEntryBytes) {
    return bad_zip_end(end.offset, fmt::format("{} entries do not fit in {} bytes of directory", fields.entries,
                                               fields.directory_bytes));
  }
  return ZipEndRecord{.start = end.offset - *end_in_archive,
                      .directory_offset = end.offset - fields.directory_bytes,
                      .directory_bytes = fields.directory_bytes,
                      .entries = fields.entries};
}

constexpr std::uint16_t kZipEncrypted = 1U << 0U;
constexpr std::uint16_t kZipHasDescriptor = 1U << 3U;
constexpr std::uint16_t kZip64ExtraField = 1;

// What the central directory says about an entry. Offsets count from the start of the archive.
struct ZipListing {
  ZipEntry entry;  // `offset` and the other places of the checksum are still to come
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  std::uint64_t local_offset = 0;
  std::uint64_t full_bytes = 0;  // of the data before compression
};

tl::unexpected<Error> bad_zip_entry(std::string_view name, std::string_view what) {
  return fail(ErrorKind::corrupt, fmt::format("ZIP entry {}: {}", quote_name(name), what));
}

// The zip64 extra field; empty if there is none. Fields that no reader understands are skipped.
ConstByteSpan find_zip64_extra(ConstByteSpan extra) {
  constexpr std::size_t kHeadBytes = 4;
  while (extra.size() >= kHeadBytes) {
    const auto id = load_le<std::uint16_t>(extra.data());
    const std::size_t bytes = load_le<std::uint16_t>(extra.data() + 2);
    if (bytes > extra.size() - kHeadBytes) break;
    if (id == kZip64ExtraField) return extra.subspan(kHeadBytes, bytes);
    extra = extra.subspan(kHeadBytes + bytes);
  }
  return {};
}

// Replaces the fields that the directory leaves to the zip64 extra field.
Result<void> read_zip64_extra(ConstByteSpan extra, ZipListing& listing, std::uint32_t& disk) {
  ByteCursor in(find_zip64_extra(extra));
  for (std::uint64_t* field : {&listing.full_bytes, &listing.entry.bytes, &listing.local_offset}) {
    if (*field != kZipIn64) continue;
    BITSNAP_ASSIGN(*field, in.read<std::uint64_t>("zip64 extra field"));
  }
  if (disk == kZipIn64Short) {
    BITSNAP_ASSIGN(disk, in.read<std::uint32_t>("zip64 extra field"));
  }
  return {};
}

Result<ZipListing> read_zip_listing(ByteCursor& in, std::uint64_t directory_offset) {
  const std::uint64_t offset = directory_offset + in.offset();
  BITSNAP_ASSIGN(const ConstByteSpan fixed, in.take(kZipEntryBytes, "ZIP directory"));
  const std::byte* at = fixed.data();
  if (load_le<std::uint32_t>(at) != kZipEntrySignature) {
    return fail(ErrorKind::corrupt, fmt::format("ZIP directory: expected an entry at {}", offset));
  }
  BITSNAP_ASSIGN(const ConstByteSpan name, in.take(load_le<std::uint16_t>(at + 28), "ZIP directory"));
  BITSNAP_ASSIGN(const ConstByteSpan extra, in.take(load_le<std::uint16_t>(at + 30), "ZIP directory"));
  BITSNAP_TRY(in.take(load_le<std::uint16_t>(at + 32), "ZIP directory"));  // the comment

  ZipListing listing;
  listing.flags = load_le<std::uint16_t>(at + 8);
  listing.method = load_le<std::uint16_t>(at + 10);
  listing.full_bytes = load_le<std::uint32_t>(at + 24);
  listing.local_offset = load_le<std::uint32_t>(at + 42);
  ZipEntry& entry = listing.entry;
  entry.name = as_text(name);
  entry.bytes = load_le<std::uint32_t>(at + 20);
  entry.is_stored = listing.method == 0 && (listing.flags & kZipEncrypted) == 0;
  entry.crc32 = load_le<std::uint32_t>(at + 16);
  entry.crc32_at = {offset + 16};
  std::uint32_t disk = load_le<std::uint16_t>(at + 34);
  Result<void> read = read_zip64_extra(extra, listing, disk);
  if (!read) return bad_zip_entry(entry.name, read.error().message());
  if (disk != 0) return bad_zip_entry(entry.name, "it lies on another disk");
  if (entry.is_stored && entry.bytes != listing.full_bytes) {
    return bad_zip_entry(entry.name, fmt::format("it is stored, but has {} bytes in the archive and {} bytes outside",
                                                 entry.bytes, listing.full_bytes));
  }
  return listing;
}

Result<void> check_zip_names(const std::vector<ZipListing>& listings) {
  std::vector<std::string_view> names;
  names.reserve(listings.size());
  for (const ZipListing& listing : listings) names.emplace_back(listing.entry.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) return bad_zip_entry(*twice, "there are two entries with this name");
  return {};
}

// Whether a field of a local header says the same as the directory. A descriptor, or a zip64 field, may say it instead.
bool zip_local_agrees(std::uint32_t field, std::uint64_t expected, bool has_descriptor, bool is_size) {
  return field == expected || (has_descriptor && field == 0) || (is_size && field == kZipIn64);
}

// Compares the local header with the directory, and finds the data behind it.
Result<void> read_zip_local(const FileBytes& bytes, ZipListing& listing, std::uint64_t end) {
  ZipEntry& entry = listing.entry;
  const std::uint64_t name_end = kZipLocalBytes + entry.name.size();
  if (end - listing.local_offset < name_end) {
    return bad_zip_entry(entry.name,
                         fmt::format("its local header at {} overlaps what begins at {}", listing.local_offset, end));
  }
  BITSNAP_ASSIGN(const std::string header, bytes.read_text(listing.local_offset, name_end));
  const std::byte* at = as_byte_span(header).data();
  const bool has_descriptor = (listing.flags & kZipHasDescriptor) != 0;
  const auto crc32 = load_le<std::uint32_t>(at + 14);
  if (load_le<std::uint32_t>(at) != kZipLocalSignature || load_le<std::uint16_t>(at + 6) != listing.flags ||
      load_le<std::uint16_t>(at + 8) != listing.method ||
      !zip_local_agrees(crc32, entry.crc32, has_descriptor, false) ||
      !zip_local_agrees(load_le<std::uint32_t>(at + 18), entry.bytes, has_descriptor, true) ||
      !zip_local_agrees(load_le<std::uint32_t>(at + 22), listing.full_bytes, has_descriptor, true) ||
      load_le<std::uint16_t>(at + 26) != entry.name.size() ||
      std::string_view(header).substr(kZipLocalBytes) != entry.name) {
    return bad_zip_entry(entry.name, fmt::format("its local header at {} is none, or disagrees with the directory",
                                                 listing.local_offset));
  }
  if (crc32 == entry.crc32 && (crc32 != 0 || !has_descriptor)) entry.crc32_at.push_back(listing.local_offset + 14);
  entry.offset = listing.local_offset + name_end + load_le<std::uint16_t>(at + 28);
  if (entry.offset > end || entry.bytes > end - entry.offset) {
    return bad_zip_entry(entry.name,
                         fmt::format("its {} bytes at {} overlap what begins at {}", entry.bytes, entry.offset, end));
  }
  return {};
}

// The place of the checksum in the descriptor behind the data: with or without a signature, and with sizes of 4 or 8
// bytes, because the format leaves both open.
Result<std::optional<std::uint64_t>> find_zip_descriptor(const FileBytes& bytes, const ZipListing& listing,
                                                         std::uint64_t end) {
  const ZipEntry& entry = listing.entry;
  const std::uint64_t offset = entry.offset + entry.bytes;
  std::array<std::byte, 24> buffer{};
  const std::size_t available = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), end - offset));
  BITSNAP_TRY(bytes.read_at(offset, ByteSpan(buffer).first(available)));
  const auto states = [&](std::size_t at, bool is64) {
    const std::byte* field = buffer.data() + at;
    if (at + (is64 ? 20 : 12) > available || load_le<std::uint32_t>(field) != entry.crc32) return false;
    if (is64) {
      return load_le<std::uint64_t>(field + 4) == entry.bytes &&
             load_le<std::uint64_t>(field + 12) == listing.full_bytes;
    }
    return load_le<std::uint32_t>(field + 4) == entry.bytes && load_le<std::uint32_t>(field + 8) == listing.full_bytes;
  };
  if (available >= 4 && load_le<std::uint32_t>(buffer.data()) == kZipDescriptorSignature &&
      (states(4, true) || states(4, false))) {
    return offset + 4;
  }
  if (states(0, true) || states(0, false)) return offset;
  return std::nullopt;
}

}  // namespace

bool looks_like_zip(std::string_view start) noexcept {
  return start.size() >= sizeof kZipLocalSignature &&
         load_le<std::uint32_t>(as_byte_span(start).data()) == kZipLocalSignature;
}

Result<std::vector<ZipEntry>> read_zip_directory(const FileBytes& bytes, const DecodeLimits& limits) {
  BITSNAP_ASSIGN(const ZipEndRecord end, read_zip_end_record(bytes));
  if (end.start != 0) {
    return fail(ErrorKind::corrupt, fmt::format("the ZIP archive begins at {}, expected 0", end.start));
  }
  if (end.directory_bytes > limits.index_bytes) {
    return fail(ErrorKind::resource_exhausted, fmt::format("the ZIP directory has {} bytes, the limit is {} bytes",
                                                           end.directory_bytes, limits.index_bytes));
  }
  BITSNAP_ASSIGN(const std::string directory, bytes.read_text(end.directory_offset, end.directory_bytes));
  std::vector<ZipListing> listings;
  listings.reserve(static_cast<std::size_t>(end.entries));
  ByteCursor in(as_byte_span(directory));
  while (listings.size() < end.entries) {
    BITSNAP_ASSIGN(ZipListing listing, read_zip_listing(in, end.directory_offset));
    listings.push_back(std::move(listing));
  }
  if (in.remaining() != 0) {
    return fail(ErrorKind::corrupt,
                fmt::format("ZIP directory: {} bytes follow the last of {} entries", in.remaining(), end.entries));
  }
  BITSNAP_TRY(check_zip_names(listings));
  std::ranges::sort(listings, {}, &ZipListing::local_offset);
  if ((listings.empty() ? end.directory_offset : listings.front().local_offset) != 0) {
    return fail(ErrorKind::corrupt, "the ZIP archive does not begin with an entry");
  }

  std::vector<ZipEntry> entries;
  entries.reserve(listings.size());
  for (std::size_t i = 0; i < listings.size(); ++i) {
    ZipListing& listing = listings[i];
    const std::uint64_t next = i + 1 < listings.size() ? listings[i + 1].local_offset : end.directory_offset;
    if (next > end.directory_offset || listing.local_offset > next) {
      return bad_zip_entry(listing.entry.name, "it or the entry behind it begins behind the directory");
    }
    BITSNAP_TRY(read_zip_local(bytes, listing, next));
    if ((listing.flags & kZipHasDescriptor) != 0) {
      BITSNAP_ASSIGN(const std::optional<std::uint64_t> crc32_at, find_zip_descriptor(bytes, listing, next));
      if (!crc32_at) return bad_zip_entry(listing.entry.name, "its data descriptor disagrees with the directory");
      listing.entry.crc32_at.push_back(*crc32_at);
    }
    entries.push_back(std::move(listing.entry));
  }
  return entries;
}

Result<std::uint64_t> find_zip_start(const FileBytes& bytes) {
  BITSNAP_ASSIGN(const ZipEndRecord end, read_zip_end_record(bytes));
  return end.start;
}

}  // namespace bitsnap::interop
