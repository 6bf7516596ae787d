#include "interop/zip/zip_writer.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "interop/container/file_bytes_testing.hpp"
#include "interop/zip/zip_checksums.hpp"
#include "interop/zip/zip_directory.hpp"

namespace bitsnap::interop {
namespace {

// From `large` on, sizes take 64 bits: as in archives of more than 4 GiB.
void expect_read_back(std::uint64_t large) {
  std::string archive;
  ZipWriter zip(
      [&archive](ConstByteSpan bytes) {
        archive += as_text(bytes);
        return Result<void>();
      },
      large);
  std::vector<std::string> contents;
  for (int i = 0; i < 40; ++i) {
    contents.push_back(std::string(static_cast<std::size_t>(i * i), static_cast<char>('a' + i % 26)));
    ASSERT_TRUE(zip.begin("folder/" + std::to_string(i), contents.back().size()));
    const ConstByteSpan bytes = as_byte_span(contents.back());
    ASSERT_TRUE(zip.append(bytes.first(bytes.size() / 3)));
    ASSERT_TRUE(zip.append(bytes.subspan(bytes.size() / 3)));
  }
  ASSERT_TRUE(zip.finish());
  EXPECT_EQ(zip.size_bytes(), archive.size());
  const auto entries = read_zip_directory(bytes_in_memory(as_byte_span(archive)), {});
  ASSERT_TRUE(entries) << entries.error().message();
  ASSERT_EQ(entries->size(), contents.size());
  for (std::size_t i = 0; i < contents.size(); ++i) {
    const ZipEntry& entry = (*entries)[i];
    EXPECT_EQ(entry.name, "folder/" + std::to_string(i));
    EXPECT_TRUE(entry.is_stored);
    EXPECT_EQ(entry.offset % 64, 0U);
    EXPECT_EQ(entry.crc32, crc32(as_byte_span(contents[i])));
    EXPECT_EQ(archive.substr(entry.offset, entry.bytes), contents[i]);
  }
}

TEST(ZipWriterTest, EntriesAreReadBack) {
  for (const std::uint64_t large : {std::uint64_t{0xffffffff}, std::uint64_t{0}, std::uint64_t{1000}}) {
    expect_read_back(large);
  }
}

TEST(ZipWriterTest, AnEntryHasTheBytesThatWereStated) {
  ZipWriter zip([](ConstByteSpan) { return Result<void>(); });
  ASSERT_TRUE(zip.begin("a", 3));
  EXPECT_FALSE(zip.append(as_byte_span("four")));
  ASSERT_TRUE(zip.append(as_byte_span("tw")));
  EXPECT_FALSE(zip.begin("b", 1));
  EXPECT_FALSE(ZipWriter([](ConstByteSpan) { return Result<void>(); }).begin(std::string(70'000, 'n'), 1));
}

}  // namespace
}  // namespace bitsnap::interop
