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
#include "interop/zip/zip_end_record.hpp"
#include "interop/zip/zip_layout.hpp"

namespace bitsnap::interop {
namespace {

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
