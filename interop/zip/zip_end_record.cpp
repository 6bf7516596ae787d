// Reads at most 65,557 bytes at the end of the file, and the zip64 records that lie right before the end record.
#include "interop/zip/zip_end_record.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "base/try.hpp"
#include "interop/zip/zip_layout.hpp"

namespace bitsnap::interop {
namespace {

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

}  // namespace

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

}  // namespace bitsnap::interop
