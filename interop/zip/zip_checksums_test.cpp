// Archives whose contents change keep checksums that are right.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "interop/container/file_bytes_testing.hpp"
#include "interop/zip/zip_checksums.hpp"
#include "interop/zip/zip_testing.hpp"

namespace bitsnap::interop {
namespace {

class ZipChecksumsTest : public testing::Test {
 protected:
  ZipChecksumsTest() {
    MadeEntry plain;
    plain.name = "plain";
    plain.data = std::string(3'000'000, 'p');  // several pieces
    MadeEntry late;
    late.name = "late";
    late.data = "late data";
    late.flags = 8;
    late.descriptor = make_zip_descriptor(late.data, true, false);
    MadeEntry compressed;
    compressed.name = "compressed";
    compressed.data = "deflated";
    compressed.method = 8;
    MadeEntry last;
    last.name = "last";
    last.data = "last data";
    archive_ = make_zip({plain, late, compressed, last});
    entries_ = read_zip_directory(bytes(), {}).value();
  }

  [[nodiscard]] FileBytes bytes() const { return bytes_in_memory(as_byte_span(archive_)); }

  // Changes the last byte of an entry.
  ByteRange change(std::size_t index) {
    const std::uint64_t at = entries_[index].offset + entries_[index].bytes - 1;
    archive_[at] ^= 1;
    return {.offset = at, .bytes = 1};
  }

  void apply(const std::vector<ZipPatch>& patches) {
    for (const ZipPatch& patch : patches) std::memcpy(archive_.data() + patch.offset, patch.bytes.data(), 4);
  }

  [[nodiscard]] bool is_right(std::size_t index) const {
    const ZipEntry entry = read_zip_directory(bytes(), {}).value()[index];
    return crc32(as_byte_span(archive_).subspan(entry.offset, entry.bytes)) == entry.crc32;
  }

  std::string archive_;
  std::vector<ZipEntry> entries_;
};

TEST_F(ZipChecksumsTest, CorrectsEveryPlaceOfAChangedEntry) {
  const std::vector<ByteRange> changed{change(0), change(1), change(3)};
  const auto patches = correct_zip_checksums(bytes(), entries_, changed);
  ASSERT_TRUE(patches.has_value()) << patches.error().message();
  EXPECT_EQ(patches->size(), 6U);
  apply(*patches);
  for (std::size_t i = 0; i < entries_.size(); ++i) EXPECT_TRUE(is_right(i)) << i;
  EXPECT_TRUE(correct_zip_checksums(bytes(), entries_, changed)->empty());
}

TEST_F(ZipChecksumsTest, LeavesOtherEntriesAlone) {
  change(0);
  const ByteRange in_late = change(1);
  const auto patches = correct_zip_checksums(bytes(), entries_, std::vector{in_late});
  ASSERT_TRUE(patches.has_value()) << patches.error().message();
  EXPECT_EQ(patches->size(), 2U);
  apply(*patches);
  EXPECT_FALSE(is_right(0));
  EXPECT_TRUE(is_right(1));
  const std::vector<ByteRange> around{{.offset = entries_[2].offset, .bytes = entries_[2].bytes},
                                      {.offset = entries_[3].offset - 1, .bytes = 1},
                                      {.offset = entries_[0].offset, .bytes = 0},
                                      {.offset = entries_[3].offset + entries_[3].bytes, .bytes = UINT64_MAX}};
  EXPECT_TRUE(correct_zip_checksums(bytes(), entries_, around)->empty());
}

TEST_F(ZipChecksumsTest, AcceptsRangesOverSeveralEntriesInAnyOrder) {
  const ByteRange last = change(3);
  change(0);
  change(1);
  const std::vector<ByteRange> changed{last, {.offset = 0, .bytes = entries_[1].offset + 1}};
  const auto patches = correct_zip_checksums(bytes(), entries_, changed);
  ASSERT_TRUE(patches.has_value()) << patches.error().message();
  apply(*patches);
  for (std::size_t i = 0; i < entries_.size(); ++i) EXPECT_TRUE(is_right(i)) << i;
}

}  // namespace
}  // namespace bitsnap::interop
