// Each record is written field by field, in the order of APPNOTE.TXT.
#include "interop/zip/zip_testing.hpp"

#include "base/bytes.hpp"
#include "interop/zip/zip_checksums.hpp"
#include "interop/zip/zip_layout.hpp"

namespace bitsnap::interop {
namespace {

template <typename T>
void append_le(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::uint16_t short_size(std::string_view text) { return static_cast<std::uint16_t>(text.size()); }

void append_local(std::string& to, const MadeEntry& entry) {
  const std::string& name = entry.local_name.empty() ? entry.name : entry.local_name;
  const bool is_late = !entry.descriptor.empty();
  const std::uint32_t size = is_late ? 0 : static_cast<std::uint32_t>(entry.data.size());
  append_le(to, kZipLocalSignature);
  append_le<std::uint16_t>(to, 20);
  append_le(to, entry.flags);
  append_le(to, entry.method);
  append_le<std::uint32_t>(to, 0);  // time and date
  append_le(to, is_late ? 0 : crc32(as_byte_span(entry.data)) + entry.crc_difference);
  append_le(to, size);
  append_le(to, size);
  append_le(to, short_size(name));
  append_le(to, short_size(entry.local_extra));
  to += name + entry.local_extra + entry.data + entry.descriptor;
}

void append_listing(std::string& to, const MadeEntry& entry, std::uint64_t offset) {
  const std::uint32_t size = static_cast<std::uint32_t>(entry.data.size()) + entry.size_difference;
  std::string extra;
  if (entry.is_zip64) {
    append_le<std::uint16_t>(extra, 0xCAFE);  // another field comes first
    append_le<std::uint16_t>(extra, 0);
    append_le<std::uint16_t>(extra, 1);
    append_le<std::uint16_t>(extra, 24);
    append_le<std::uint64_t>(extra, size);
    append_le<std::uint64_t>(extra, size);
    append_le(extra, offset);
  }
  append_le(to, kZipEntrySignature);
  append_le<std::uint32_t>(to, 20);  // two versions
  append_le(to, entry.flags);
  append_le(to, entry.method);
  append_le<std::uint32_t>(to, 0);  // time and date
  append_le(to, crc32(as_byte_span(entry.data)));
  append_le(to, entry.is_zip64 ? kZipIn64 : size);
  append_le(to, entry.is_zip64 ? kZipIn64 : size);
  append_le(to, short_size(entry.name));
  append_le(to, short_size(extra));
  append_le<std::uint16_t>(to, 0);  // comment
  append_le(to, entry.disk);
  append_le<std::uint16_t>(to, 0);  // attributes
  append_le<std::uint32_t>(to, 0);
  append_le(to, entry.is_zip64 ? kZipIn64 : static_cast<std::uint32_t>(offset));
  to += entry.name + extra;
}

}  // namespace

std::string make_zip_descriptor(std::string_view data, bool has_signature, bool is_zip64) {
  std::string descriptor;
  if (has_signature) append_le(descriptor, kZipDescriptorSignature);
  append_le(descriptor, crc32(as_byte_span(data)));
  for (int i = 0; i < 2; ++i) {
    append_le(descriptor, static_cast<std::uint32_t>(data.size()));
    if (is_zip64) append_le<std::uint32_t>(descriptor, 0);
  }
  return descriptor;
}

std::string make_zip(const std::vector<MadeEntry>& entries, std::string_view gap) {
  std::string archive;
  std::string directory;
  for (const MadeEntry& entry : entries) {
    const std::uint64_t offset = archive.size();
    append_local(archive, entry);
    append_listing(directory, entry, offset + static_cast<std::uint64_t>(entry.local_offset_change));
  }
  archive += gap;
  const auto directory_offset = static_cast<std::uint32_t>(archive.size());
  archive += directory;
  append_le(archive, kZipEndSignature);
  append_le<std::uint32_t>(archive, 0);  // two disks
  append_le(archive, static_cast<std::uint16_t>(entries.size()));
  append_le(archive, static_cast<std::uint16_t>(entries.size()));
  append_le(archive, static_cast<std::uint32_t>(directory.size()));
  append_le(archive, directory_offset);
  append_le<std::uint16_t>(archive, 0);  // comment
  return archive;
}

std::string make_stored_zip(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::vector<MadeEntry> made;
  for (const auto& [name, data] : entries) {
    MadeEntry& entry = made.emplace_back();
    entry.name = name;
    entry.data = data;
  }
  return make_zip(made);
}

}  // namespace bitsnap::interop
