// The checksum of an entry is computed from pieces of the file, so that memory does not grow with the entry.
#include "interop/zip/zip_checksums.hpp"

#include <algorithm>

#include "base/try.hpp"

namespace bitsnap::interop {
namespace {

using CrcTable = std::array<std::uint32_t, 256>;

// For eight bytes at a time ("slicing-by-8"): kCrcTables[k][b] is the checksum of byte b and k zeros.
constexpr std::array<CrcTable, 8> make_crc_tables() {
  constexpr std::uint32_t kPolynomial = 0xEDB88320;
  std::array<CrcTable, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8U) ^ tables[0][crc & 0xffU];
    }
  }
  return tables;
}

constexpr std::array<CrcTable, 8> kCrcTables = make_crc_tables();

}  // namespace

std::uint32_t crc32(ConstByteSpan bytes, std::uint32_t before) noexcept {
  std::uint32_t crc = ~before;
  while (bytes.size() >= 8) {
    const std::uint64_t eight = load_le<std::uint64_t>(bytes.data()) ^ crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kCrcTables[7 - i][(eight >> (8 * i)) & 0xffU];
    bytes = bytes.subspan(8);
  }
  for (const std::byte byte : bytes) {
    crc = (crc >> 8U) ^ kCrcTables[0][(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xffU];
  }
  return ~crc;
}

namespace {

constexpr std::size_t kCrcPieceBytes = std::size_t{1} << 20;

Result<std::uint32_t> crc32_of_zip_entry(const FileBytes& bytes, const ZipEntry& entry,
                                         std::vector<std::byte>& buffer) {
  BITSNAP_ASSIGN(const FileBytes data, bytes.part(entry.offset, entry.bytes));
  buffer.resize(static_cast<std::size_t>(std::min<std::uint64_t>(data.size(), kCrcPieceBytes)));
  std::uint32_t crc = 0;
  for (std::uint64_t done = 0; done < data.size(); done += buffer.size()) {
    const std::uint64_t rest = data.size() - done;
    const ByteSpan piece = ByteSpan(buffer).first(std::min<std::size_t>(buffer.size(), rest));
    BITSNAP_TRY(data.read_at(done, piece));
    crc = crc32(piece, crc);
  }
  return crc;
}

}  // namespace

Result<std::vector<ZipPatch>> correct_zip_checksums(const FileBytes& bytes, std::span<const ZipEntry> entries,
                                                    std::span<const ByteRange> changed) {
  std::vector<ByteRange> ranges(changed.begin(), changed.end());
  std::erase_if(ranges, [](const ByteRange& range) { return range.bytes == 0; });
  std::ranges::sort(ranges, {}, &ByteRange::offset);
  std::vector<ZipPatch> patches;
  std::vector<std::byte> buffer;
  auto range = ranges.begin();
  for (const ZipEntry& entry : entries) {
    // Ranges that end before this entry end before all later ones, too.
    while (range != ranges.end() && range->offset < entry.offset && entry.offset - range->offset >= range->bytes) {
      ++range;
    }
    if (range == ranges.end()) break;
    const bool touched = range->offset < entry.offset || range->offset - entry.offset < entry.bytes;
    if (!touched || entry.bytes == 0 || !entry.is_stored) continue;
    BITSNAP_ASSIGN(const std::uint32_t crc, crc32_of_zip_entry(bytes, entry, buffer));
    for (const std::uint64_t at : entry.crc32_at) {
      ZipPatch patch{.offset = at};
      store_le(patch.bytes.data(), crc);
      std::array<std::byte, 4> stated{};
      BITSNAP_TRY(bytes.read_at(at, stated));
      if (stated != patch.bytes) patches.push_back(patch);
    }
  }
  std::ranges::sort(patches, {}, &ZipPatch::offset);
  return patches;
}

}  // namespace bitsnap::interop
