// Blob: the bytes of files in memory, and reading them as files.
#include "store/blob.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "container/raw_file_testing.hpp"

namespace bitsnap::store {
namespace {

using container::Bytes;
using container::bytes_of;

// Random bytes that repeat with a period that no size of a piece is a multiple of.
Bytes noise(std::size_t size) {
  std::mt19937 random(1);
  Bytes bytes(size);
  const std::size_t pattern = std::min(size, std::size_t{1'000'003});
  for (std::size_t i = 0; i < pattern; ++i) bytes[i] = static_cast<std::byte>(random());
  for (std::size_t i = pattern; i < size; i += pattern) {
    std::memcpy(&bytes[i], bytes.data(), std::min(pattern, size - i));
  }
  return bytes;
}

Bytes contents(const Blob& blob) {
  Bytes bytes;
  for (std::size_t i = 0; i < blob.pieces(); ++i) bytes.insert(bytes.end(), blob.piece(i).begin(), blob.piece(i).end());
  return bytes;
}

TEST(Blob, HoldsTheAppendedBytesForAnySizesOfPieces) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, Blob::kPieceBytes - 1, Blob::kPieceBytes,
                                 Blob::kPieceBytes + 1, 3 * Blob::kPieceBytes + 77}) {
    const Bytes bytes = noise(size);
    for (const std::size_t cut : {std::size_t{700'001}, 2 * Blob::kPieceBytes, std::size_t{1} << 25}) {
      BlobWriter writer("a.bsnap");
      for (ConstByteSpan left = bytes; !left.empty();) {
        const ConstByteSpan part = left.first(std::min(cut, left.size()));
        ASSERT_TRUE(writer.append(part));
        left = left.subspan(part.size());
      }
      EXPECT_EQ(writer.size_bytes(), size);
      ASSERT_TRUE(writer.close());
      EXPECT_EQ(writer.blob()->size_bytes(), size);
      EXPECT_EQ(contents(*writer.blob()), bytes);
      EXPECT_EQ(writer.size_bytes(), size);
    }
  }
}

TEST(Blob, ReadsAsAFileAtAnyOffset) {
  const Bytes bytes = noise(2 * Blob::kPieceBytes + 100);
  BlobWriter writer("a.bsnap");
  ASSERT_TRUE(writer.append(bytes));
  ASSERT_TRUE(writer.close());
  const auto file = blob_file(writer.blob(), "in/memory");
  EXPECT_EQ(file->path(), "in/memory");
  EXPECT_EQ(file->size_bytes(), bytes.size());
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const std::size_t offset = random() % (bytes.size() + 1);
    Bytes out(random() % (bytes.size() + 1 - offset));
    ASSERT_TRUE(file->read_at(offset, out));
    ASSERT_TRUE(out.empty() || std::memcmp(out.data(), &bytes[offset], out.size()) == 0);
  }
  Bytes two(2);
  for (const std::uint64_t offset : {std::uint64_t{bytes.size() - 1}, std::uint64_t{bytes.size()}, UINT64_MAX}) {
    const Result<void> past = file->read_at(offset, two);
    ASSERT_FALSE(past);
    EXPECT_EQ(past.error().kind(), ErrorKind::truncated);
    EXPECT_NE(past.error().message().find("in/memory"), std::string::npos);
  }
}

TEST(BlobWriter, ReturnsItsBlobOnceItIsClosed) {
  BlobWriter writer("a.bsnap");
  ASSERT_TRUE(writer.append(bytes_of("one ")));
  ASSERT_TRUE(writer.append(bytes_of("two")));
  EXPECT_TRUE(writer.sync());
  EXPECT_EQ(writer.blob(), nullptr);
  EXPECT_EQ(writer.size_bytes(), 7U);
  EXPECT_TRUE(writer.close());
  EXPECT_TRUE(writer.close());
  ASSERT_NE(writer.blob(), nullptr);
  EXPECT_EQ(contents(*writer.blob()), bytes_of("one two"));
  EXPECT_EQ(writer.append(bytes_of("more")).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(writer.sync().error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(writer.path(), "a.bsnap");
}

}  // namespace
}  // namespace bitsnap::store
