// Archives of zipfile, Info-ZIP and torch, and archives that lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "interop/container/file_bytes_testing.hpp"
#include "interop/zip/zip_directory.hpp"
#include "interop/zip/zip_testing.hpp"
#include "os/file_system.hpp"

namespace bitsnap::interop {
namespace {

using namespace std::string_view_literals;

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

void expect_zip_refusal(const std::string& archive, std::string_view words, ErrorKind kind = ErrorKind::corrupt) {
  const auto entries = read_zip(archive);
  ASSERT_FALSE(entries.has_value()) << words;
  EXPECT_EQ(entries.error().kind(), kind) << entries.error().message();
  EXPECT_NE(entries.error().message().find(words), std::string::npos) << entries.error().message();
}

MadeEntry made_entry(const std::string& name, const std::string& data) {
  MadeEntry entry;
  entry.name = name;
  entry.data = data;
  return entry;
}

constexpr std::uint16_t kDescriptorFlag = 8;

TEST(ZipDirectory, FindsTheDescriptorInEachOfItsForms) {
  for (const bool has_signature : {false, true}) {
    for (const bool is_zip64 : {false, true}) {
      MadeEntry entry = made_entry("a", "12345");
      entry.flags = kDescriptorFlag;
      entry.descriptor = make_zip_descriptor(entry.data, has_signature, is_zip64);
      for (const char* gap : {"", "padding"}) {
        const std::string archive = make_zip({made_entry("b", "678"), entry}, gap);
        const auto entries = read_zip(archive);
        ASSERT_TRUE(entries.has_value()) << entries.error().message();
        expect_sound(archive, *entries);
        const ZipEntry& found = entries->back();
        EXPECT_EQ(found.crc32_at.back(), found.offset + 5 + (has_signature ? 4 : 0));
      }
    }
  }
}

TEST(ZipDirectory, ReadsZip64FieldsAndBytesBetweenEntries) {
  MadeEntry first = made_entry("first", "12345");
  first.is_zip64 = true;
  first.local_extra = std::string(37, 'x');
  MadeEntry second = made_entry("second", "");
  second.is_zip64 = true;
  const std::string archive = make_zip({first, second}, "a gap");
  const auto entries = read_zip(archive);
  ASSERT_TRUE(entries.has_value()) << entries.error().message();
  ASSERT_EQ(entries->size(), 2U);
  EXPECT_EQ((*entries)[0].offset, 30 + 5 + 37U);
  EXPECT_EQ(archive.substr((*entries)[0].offset, (*entries)[0].bytes), "12345");
}

TEST(ZipDirectory, ReadsSizesAndOffsetsAboveFourGibibytes) {
  // Between these two, there are zeros.
  const std::string start = zip_fixture("huge_start.bin");
  const std::string end = zip_fixture("huge_end.bin");
  constexpr std::uint64_t kZeros = std::uint64_t{5} << 30U;
  const std::uint64_t end_offset = kZeros;  // the zeros begin behind a local header
  const FileBytes bytes(end_offset + end.size(), [&](std::uint64_t offset, ByteSpan out) -> Result<void> {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::uint64_t at = offset + i;
      char byte = '\0';
      if (at < start.size()) byte = start[at];
      if (at >= end_offset) byte = end[at - end_offset];
      out[i] = static_cast<std::byte>(byte);
    }
    return {};
  });
  const auto entries = read_zip_directory(bytes, {});
  ASSERT_TRUE(entries.has_value()) << entries.error().message();
  ASSERT_EQ(entries->size(), 2U);
  EXPECT_EQ((*entries)[0].bytes, kZeros);
  EXPECT_EQ((*entries)[1].name, "after");
  EXPECT_EQ(bytes.read_text((*entries)[1].offset, (*entries)[1].bytes).value(), "behind 4 GiB");
}

TEST(ZipDirectory, FindsTheStartOfTheLastOfSeveralArchives) {
  const std::string first = make_stored_zip({{"a", "1"}});
  for (const char* file : {"stored.zip", "zip64.zip", "torch.zip", "none.zip", "comment.zip"}) {
    const std::string both = first + zip_fixture(file);
    expect_zip_refusal(both, fmt::format("begins at {}, expected 0", first.size()));
    const FileBytes bytes = bytes_in_memory(as_byte_span(both));
    const auto start = find_zip_start(bytes);
    ASSERT_TRUE(start.has_value()) << start.error().message();
    EXPECT_EQ(*start, first.size());
    EXPECT_TRUE(read_zip_directory(bytes.part(*start, both.size() - *start).value(), {}).has_value());
    EXPECT_EQ(find_zip_start(bytes.part(0, *start).value()).value(), 0U);
  }
}

TEST(ZipDirectory, RejectsArchivesThatContradictThemselves) {
  const MadeEntry a = made_entry("a", "12345");
  const MadeEntry b = made_entry("b", "678");
  const std::string sound = make_zip({a, b});
  ASSERT_TRUE(read_zip(sound).has_value());
  expect_zip_refusal(sound + "x", "no ZIP end record ends");
  expect_zip_refusal("x" + sound, "begins at 1, expected 0");
  expect_zip_refusal(make_zip({a, a}), "two entries with this name");

  const auto with_b = [&](auto change) {
    MadeEntry changed = b;
    change(changed);
    return make_zip({a, changed});
  };
  expect_zip_refusal(with_b([](MadeEntry& e) { e.local_name = "c"; }), "disagrees with the directory");
  expect_zip_refusal(with_b([](MadeEntry& e) { e.local_name = "bb"; }), "disagrees with the directory");
  expect_zip_refusal(with_b([](MadeEntry& e) { e.crc_difference = 1; }), "disagrees with the directory");
  expect_zip_refusal(with_b([](MadeEntry& e) { e.size_difference = 1; }), "disagrees with the directory");
  expect_zip_refusal(with_b([](MadeEntry& e) { e.disk = 1; }), "another disk");
  expect_zip_refusal(with_b([](MadeEntry& e) { e.local_offset_change = 1; }), "disagrees with the directory");
  expect_zip_refusal(with_b([](MadeEntry& e) { e.local_offset_change = -1; }), "overlap");
  expect_zip_refusal(with_b([](MadeEntry& e) { e.local_offset_change = -36; }), "overlaps");
  expect_zip_refusal(with_b([](MadeEntry& e) { e.local_offset_change = 20; }), "overlaps");
  expect_zip_refusal(with_b([](MadeEntry& e) { e.local_offset_change = 1 << 20; }), "begins behind the directory");
  expect_zip_refusal(with_b([](MadeEntry& e) { e.flags = kDescriptorFlag; }), "descriptor");
  expect_zip_refusal(with_b([](MadeEntry& e) {
                       e.flags = kDescriptorFlag;
                       e.descriptor = make_zip_descriptor("other", true, false);
                     }),
                     "descriptor");
}

TEST(ZipDirectory, RejectsEndRecordsThatDoNotFit) {
  std::string archive = make_stored_zip({{"a", "12345"}});
  const std::size_t end = archive.size() - 22;
  const auto with = [&](std::size_t at, std::string_view bytes) {
    std::string changed = archive;
    return changed.replace(end + at, bytes.size(), bytes);
  };
  expect_zip_refusal(with(4, "\1"), "several disks");
  expect_zip_refusal(with(8, "\2"), "several disks");
  expect_zip_refusal(with(8, "\0\0\0\0"sv), "follow the last of 0 entries");
  expect_zip_refusal(with(8, "\2\0\2\0"sv), "do not fit");
  expect_zip_refusal(with(12, "\xff\xff"), "do not fit");
  expect_zip_refusal(with(16, "\xff\xff"), "do not fit");
  EXPECT_EQ(read_zip_directory(bytes_in_memory(as_byte_span(archive)), {.index_bytes = 46}).error().kind(),
            ErrorKind::resource_exhausted);
}

// Whatever the bytes are, there is an error or a list of entries that lie in the file one behind another.
TEST(ZipDirectory, SurvivesEveryTruncationAndEveryFlippedByte) {
  MadeEntry late = made_entry("late", "12345");
  late.flags = kDescriptorFlag;
  late.descriptor = make_zip_descriptor(late.data, true, true);
  for (const std::string& archive : {zip_fixture("zip64.zip"), zip_fixture("torch.zip"), zip_fixture("none.zip"),
                                     zip_fixture("info_zip_descriptors.zip"), make_zip({late})}) {
    for (std::size_t size = 0; size < archive.size(); ++size) {
      EXPECT_FALSE(read_zip(archive.substr(0, size)).has_value()) << size;
    }
    for (std::size_t at = 0; at < archive.size(); ++at) {
      for (const int mask : {0x01, 0x80, 0xff}) {
        std::string flipped = archive;
        flipped[at] = static_cast<char>(flipped[at] ^ mask);
        const auto entries = read_zip(flipped);
        if (entries) expect_sound(flipped, *entries);
      }
    }
  }
}

TEST(ZipDirectory, ReadsEachEntryOfAnArchiveWithOneRead) {
  std::vector<std::pair<std::string, std::string>> contents;
  for (int i = 0; i < 60'000; ++i) contents.emplace_back(fmt::format("archive/data/{}", i), "x");
  const std::string archive = make_stored_zip(contents);
  std::uint64_t reads = 0;
  const FileBytes counted(archive.size(), [&](std::uint64_t offset, ByteSpan out) {
    ++reads;
    return bytes_in_memory(as_byte_span(archive)).read_at(offset, out);
  });
  const auto entries = read_zip_directory(counted, {});
  ASSERT_TRUE(entries.has_value()) << entries.error().message();
  EXPECT_EQ(entries->size(), contents.size());
  EXPECT_LE(reads, contents.size() + 3);
}

}  // namespace
}  // namespace bitsnap::interop
