// The checksum against known values and against a reference that works bit by bit.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "interop/zip/zip_checksums.hpp"

namespace bitsnap::interop {
namespace {

std::uint32_t crc32_bit_by_bit(std::string_view text) {
  std::uint32_t crc = 0xffffffff;
  for (const char character : text) {
    crc ^= static_cast<unsigned char>(character);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

TEST(Crc32, IsTheChecksumOfZip) {
  EXPECT_EQ(crc32(as_byte_span("")), 0U);
  EXPECT_EQ(crc32(as_byte_span("a")), 0xE8B7BE43U);
  EXPECT_EQ(crc32(as_byte_span("123456789")), 0xCBF43926U);
  EXPECT_EQ(crc32(as_byte_span("The quick brown fox jumps over the lazy dog")), 0x414FA339U);
  EXPECT_EQ(crc32(as_byte_span(std::string(32, '\0'))), 0x190A55ADU);
  EXPECT_EQ(crc32(as_byte_span(std::string(32, '\xff'))), 0xFF6CAB0BU);
}

TEST(Crc32, IsTheSameInPiecesOfAnySize) {
  std::string text;
  for (int i = 0; i < 100; ++i) text.push_back(static_cast<char>(i * i * 7 + 3));
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const std::string_view part = std::string_view(text).substr(0, size);
    const std::uint32_t expected = crc32_bit_by_bit(part);
    for (std::size_t cut = 0; cut <= size; ++cut) {
      const std::uint32_t before = crc32(as_byte_span(part.substr(0, cut)));
      ASSERT_EQ(crc32(as_byte_span(part.substr(cut)), before), expected) << size << " cut at " << cut;
    }
  }
}

}  // namespace
}  // namespace bitsnap::interop
