// Reading from memory what was stored, where it is still that.
#include "restore/warm_chunks.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "os/file_system_fake.hpp"
#include "restore/open_snapshot.hpp"
#include "restore/state_builder_testing.hpp"

namespace bitsnap::restore {
namespace {

using codec::CodecId;
using container::MemoryFile;
using container::ReadLog;

// One tensor in memory.
class Memory final : public WarmChunks {
 public:
  Memory(std::size_t stream, Bytes bytes, std::size_t chunk_bytes)
      : stream_(stream), bytes_(std::move(bytes)), chunk_bytes_(chunk_bytes) {}

  bool copy(std::size_t stream, std::uint64_t chunk, ByteSpan out) const override {
    if (stream != stream_) return false;
    std::memcpy(out.data(), bytes_.data() + static_cast<std::size_t>(chunk) * chunk_bytes_, out.size());
    return true;
  }
  void note_mismatch(std::size_t, std::uint64_t chunk) const noexcept override {
    ++mismatches_;
    last_ = chunk;
  }

  Bytes& bytes() { return bytes_; }
  std::size_t mismatches() const { return mismatches_; }
  std::uint64_t last() const { return last_; }

 private:
  std::size_t stream_;
  Bytes bytes_;
  std::size_t chunk_bytes_;
  mutable std::atomic<std::size_t> mismatches_ = 0;
  mutable std::atomic<std::uint64_t> last_ = 0;
};

class WarmChunksTest : public ::testing::Test {
 protected:
  WarmChunksTest() {
    builder_.add("x", DType::f32, data_, {CodecId::raw, {}, {}, 0});
    file_ = builder_.build();
    warm_ = std::make_shared<Memory>(0, data_, 4 * kChunkElements);
    auto opened = open_snapshot(std::make_unique<MemoryFile>("x.bsnap", file_, log_), {}, no_files_);
    EXPECT_TRUE(opened.has_value());
    snapshot_ = *opened;
    offer_warm_chunks(*snapshot_, warm_);
    opened_reads_ = log_->reads().size();
  }

  Bytes read() {
    Bytes out(data_.size());
    const Snapshot::ReadRequest request{0, out};
    const auto done = snapshot_->read(std::span(&request, 1), {});
    EXPECT_TRUE(done.has_value()) << done.error().message();
    return out;
  }

  const Bytes data_ = random_bytes(4 * (2 * kChunkElements + 77), 1);
  os::FakeFileSystem no_files_;
  StateBuilder builder_;
  Bytes file_;
  std::shared_ptr<ReadLog> log_ = std::make_shared<ReadLog>();
  std::shared_ptr<Memory> warm_;
  std::shared_ptr<const Snapshot> snapshot_;
  std::size_t opened_reads_ = 0;
};

TEST_F(WarmChunksTest, WhatIsStillInMemoryIsNotReadFromTheFile) {
  EXPECT_EQ(read(), data_);
  EXPECT_EQ(log_->reads().size(), opened_reads_);
  EXPECT_EQ(warm_->mismatches(), 0u);
}

TEST_F(WarmChunksTest, AChunkThatWasWrittenOverIsDecodedInstead) {
  warm_->bytes()[4 * kChunkElements + 5] ^= std::byte{1};
  EXPECT_EQ(read(), data_);
  EXPECT_EQ(log_->reads().size(), opened_reads_ + 1);
  EXPECT_EQ(warm_->mismatches(), 1u);
  EXPECT_EQ(warm_->last(), 1u);
}

TEST_F(WarmChunksTest, PartsOfChunksAreHeldAgainstTheHashOfTheWhole) {
  warm_->bytes()[0] ^= std::byte{1};
  Bytes out(10);
  ASSERT_TRUE(snapshot_->read_bytes(0, 100, out).has_value());
  EXPECT_EQ(out, Bytes(data_.begin() + 100, data_.begin() + 110));
  EXPECT_EQ(warm_->mismatches(), 1u);
}

TEST_F(WarmChunksTest, WhatIsNoLongerOfferedIsNotLookedAt) {
  offer_warm_chunks(*snapshot_, nullptr);
  warm_->bytes()[0] ^= std::byte{1};
  EXPECT_EQ(read(), data_);
  EXPECT_EQ(warm_->mismatches(), 0u);
}

TEST_F(WarmChunksTest, VerifyingLooksAtTheFileAlone) {
  const auto damages = snapshot_->verify();
  ASSERT_TRUE(damages.has_value());
  EXPECT_TRUE(damages->empty());
  EXPECT_GE(log_->reads().size(), opened_reads_ + 3);
}

}  // namespace
}  // namespace bitsnap::restore
