// Fuzz target: any bytes as a ZIP archive are refused, or list entries that lie in the file one behind another; so do
// the arrays of the same bytes as a .npz file. Corrected checksums are right, and stay right.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "interop/container/file_bytes_testing.hpp"
#include "interop/npy/npy.hpp"
#include "interop/zip/zip_checksums.hpp"
#include "interop/zip/zip_directory.hpp"

namespace {

using namespace bitsnap;
using namespace bitsnap::interop;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_entries(ConstByteSpan bytes, const std::vector<ZipEntry>& entries) {
  std::uint64_t end = 0;
  for (const ZipEntry& entry : entries) {
    require(entry.offset >= end && entry.offset <= bytes.size() && entry.bytes <= bytes.size() - entry.offset);
    end = entry.offset + entry.bytes;
    require(!entry.crc32_at.empty());
    for (const std::uint64_t at : entry.crc32_at) {
      require(at <= bytes.size() - 4 && load_le<std::uint32_t>(bytes.data() + at) == entry.crc32);
    }
  }
}

void check_checksums(ConstByteSpan bytes, const std::vector<ZipEntry>& entries) {
  std::vector<std::byte> changed(bytes.begin(), bytes.end());
  const FileBytes file = bytes_in_memory(changed);
  const std::array<ByteRange, 1> all{ByteRange{.offset = 0, .bytes = bytes.size()}};
  const auto patches = correct_zip_checksums(file, entries, all);
  require(patches.has_value());
  for (const ZipPatch& patch : *patches) {
    for (std::size_t i = 0; i < patch.bytes.size(); ++i) changed[patch.offset + i] = patch.bytes[i];
  }
  const auto again = read_zip_directory(file, {});
  require(again.has_value() && again->size() == entries.size());
  check_entries(changed, *again);
  for (const ZipEntry& entry : *again) {
    if (!entry.is_stored || entry.bytes == 0) continue;
    require(crc32(ConstByteSpan(changed).subspan(entry.offset, entry.bytes)) == entry.crc32);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ConstByteSpan bytes = std::as_bytes(std::span(data, size));
  const FileBytes file = bytes_in_memory(bytes);
  const auto start = find_zip_start(file);
  require(!start || *start <= size);
  const auto entries = read_zip_directory(file, {});
  const auto contents = read_npz(file, {});
  require(entries.has_value() == contents.has_value());
  if (!entries) return 0;
  require(*start == 0);
  check_entries(bytes, *entries);
  check_checksums(bytes, *entries);

  std::uint64_t end = 0;
  for (const FoundTensor& found : contents->tensors) {
    require(!found.info.name.empty() && found.info.size_bytes > 0);
    require(found.offset >= end && found.offset <= size && found.info.size_bytes <= size - found.offset);
    end = found.offset + found.info.size_bytes;
  }
  return 0;
}
