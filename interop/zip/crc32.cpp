// Eight bytes at a time, with eight tables ("slicing-by-8"): kCrcTables[k][b] is the checksum of byte b and k zeros.
#include "interop/zip/crc32.hpp"

#include <array>
#include <cstddef>

namespace bitsnap::interop {
namespace {

using CrcTable = std::array<std::uint32_t, 256>;

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

}  // namespace bitsnap::interop
