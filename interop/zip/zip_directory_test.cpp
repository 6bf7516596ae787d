// Archives of zipfile, Info-ZIP and torch, and archives that lie.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "base/bytes.hpp"
#include "interop/zip/zip_directory.hpp"
#include "os/file_system.hpp"

namespace bitsnap::interop {
namespace {

std::string zip_fixture(const std::string& name) {
  const auto path = std::filesystem::path(BITSNAP_TESTS_DIR).parent_path() / "interop" / "zip" / "fixtures" / name;
  return std::string(as_text(os::read_file(os::real_file_system(), path.string(), UINT64_MAX).value()));
}

Result<std::vector<ZipEntry>> read_zip(const std::string& archive) {
  return read_zip_directory(bytes_in_memory(as_byte_span(archive)), {});
}

// The places that a sound entry may state its checksum in must all state it.
void expect_sound(const std::string& archive, const std::vector<ZipEntry>& entries) {
  std::uint64_t end = 0;
  for (const ZipEntry& entry : entries) {
    EXPECT_GE(entry.offset, end) << entry.name;
    ASSERT_LE(entry.bytes, archive.size()) << entry.name;
    ASSERT_LE(entry.offset, archive.size() - entry.bytes) << entry.name;
    end = entry.offset + entry.bytes;
    for (const std::uint64_t at : entry.crc32_at) {
      ASSERT_LE(at + 4, archive.size()) << entry.name;
      EXPECT_EQ(load_le<std::uint32_t>(as_byte_span(archive).data() + at), entry.crc32) << entry.name;
    }
  }
}

const std::string kZipNumbers = [] {
  std::string numbers;
  for (int i = 0; i < 256; ++i) numbers.push_back(static_cast<char>(i));
  return numbers;
}();

class ZipFileTest : public testing::TestWithParam<const char*> {};

TEST_P(ZipFileTest, FindsTheStoredEntries) {
  const std::string archive = zip_fixture(GetParam());
  const auto entries = read_zip(archive);
  ASSERT_TRUE(entries.has_value()) << entries.error().message();
  expect_sound(archive, *entries);
  std::map<std::string, std::string> found;
  for (const ZipEntry& entry : *entries) {
    EXPECT_TRUE(entry.is_stored);
    found[entry.name] = archive.substr(entry.offset, entry.bytes);
    // The directory, and either the local header or the descriptor: all these writers leave one of the two at 0.
    if (entry.bytes > 0) {
      EXPECT_EQ(entry.crc32_at.size(), 2U) << entry.name;
    }
  }
  std::string text;
  for (int i = 0; i < 20; ++i) text += "bitsnap ";
  EXPECT_EQ(found, (std::map<std::string, std::string>{{"empty", ""}, {"numbers", kZipNumbers}, {"text", text}}));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ZipFileTest,
                         testing::Values("stored.zip", "zip64.zip", "comment.zip", "descriptors.zip",
                                         "descriptors64.zip", "info_zip.zip", "info_zip_descriptors.zip",
                                         "info_zip_piped.zip"));

TEST(ZipDirectory, ReadsAnArchiveOfTorch) {
  const std::string archive = zip_fixture("torch.zip");
  const auto entries = read_zip(archive);
  ASSERT_TRUE(entries.has_value()) << entries.error().message();
  expect_sound(archive, *entries);
  const auto data = std::ranges::find(*entries, std::string("torch/data/0"), &ZipEntry::name);
  ASSERT_NE(data, entries->end());
  EXPECT_EQ(data->bytes, 48U);
  EXPECT_EQ(data->offset % 64, 0U);
  EXPECT_EQ(data->crc32_at.size(), 2U);
}

TEST(ZipDirectory, MarksCompressedAndEncryptedEntries) {
  for (const char* file : {"deflated.zip", "encrypted.zip"}) {
    const std::string archive = zip_fixture(file);
    const auto entries = read_zip(archive);
    ASSERT_TRUE(entries.has_value()) << entries.error().message();
    expect_sound(archive, *entries);
    for (const ZipEntry& entry : *entries)
      EXPECT_EQ(entry.is_stored, file == std::string("encrypted.zip") && entry.bytes == 0) << entry.name;
  }
}

TEST(ZipDirectory, FindsNothingInAnArchiveWithoutEntries) {
  const auto entries = read_zip(zip_fixture("none.zip"));
  ASSERT_TRUE(entries.has_value()) << entries.error().message();
  EXPECT_TRUE(entries->empty());
}

}  // namespace
}  // namespace bitsnap::interop
