// Writes archives entry by entry, sound ones and ones that lie. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bitsnap::interop {

// An entry of the directory; the members are what the records state.
struct MadeEntry {
  std::string name;
  std::string data;  // as in the archive
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  std::uint16_t disk = 0;
  std::string local_name;                // in the local header, if not empty
  std::string local_extra;               // padding before the data
  bool is_zip64 = false;                 // sizes and offset in an extra field
  std::string descriptor;                // behind the data
  std::uint32_t size_difference = 0;     // added to both sizes in the directory
  std::uint32_t crc_difference = 0;      // added to the checksum in the local header
  std::int64_t local_offset_change = 0;  // added to the offset in the directory
};

// The descriptor of `data`: a signature, if wanted, the checksum and two sizes of 4 or 8 bytes.
[[nodiscard]] std::string make_zip_descriptor(std::string_view data, bool has_signature, bool is_zip64);

// The entries one behind another, the directory and the end record; `gap` comes before the directory.
[[nodiscard]] std::string make_zip(const std::vector<MadeEntry>& entries, std::string_view gap = {});

// An archive of stored entries for tests of containers that are ZIP archives.
[[nodiscard]] std::string make_stored_zip(const std::vector<std::pair<std::string, std::string>>& entries);

}  // namespace bitsnap::interop
