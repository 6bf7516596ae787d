// Reads that copy decoded bytes from owned and from foreign memory.
#include "restore/decoded_state.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "os/file_system_fake.hpp"
#include "os/memory.hpp"
#include "restore/open_snapshot.hpp"
#include "restore/state_builder_testing.hpp"

namespace bitsnap::restore {
namespace {

using codec::CodecId;
using container::MemoryFile;
using container::ReadLog;

class DecodedStateTest : public ::testing::Test {
 protected:
  DecodedStateTest() {
    builder_.add("x", DType::f32, data_, {CodecId::raw, {}, {}, 0});
    file_ = builder_.build();
    auto opened = open_snapshot(std::make_unique<MemoryFile>("x.bsnap", file_, log_), {}, no_files_);
    EXPECT_TRUE(opened.has_value());
    snapshot_ = *opened;
    const ConstByteSpan tensor(memory_);
    foreign_ = std::make_shared<DecodedState>(*snapshot_, std::span(&tensor, 1), nullptr);
    attach_decoded(*snapshot_, foreign_);
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
  Bytes memory_ = data_;  // foreign
  std::shared_ptr<DecodedState> foreign_;
  std::shared_ptr<const Snapshot> snapshot_;
  std::size_t opened_reads_ = 0;
};

TEST_F(DecodedStateTest, CopiesChunksFromMemoryInsteadOfTheFile) {
  EXPECT_EQ(read(), data_);
  EXPECT_EQ(log_->reads().size(), opened_reads_);
  EXPECT_EQ(foreign_->mismatches(), 0u);
}

TEST_F(DecodedStateTest, DecodesAChunkThatWasOverwrittenInMemory) {
  memory_[4 * kChunkElements + 5] ^= std::byte{1};
  EXPECT_EQ(read(), data_);
  EXPECT_EQ(log_->reads().size(), opened_reads_ + 1);
  EXPECT_EQ(foreign_->mismatches(), 1u);
}

TEST_F(DecodedStateTest, ChecksTheHashOfTheWholeChunkForParts) {
  memory_[0] ^= std::byte{1};
  Bytes out(10);
  ASSERT_TRUE(snapshot_->read_bytes(0, 100, out).has_value());
  EXPECT_EQ(out, Bytes(data_.begin() + 100, data_.begin() + 110));
  EXPECT_EQ(foreign_->mismatches(), 1u);
}

TEST_F(DecodedStateTest, IgnoresMemoryThatWasDetached) {
  attach_decoded(*snapshot_, nullptr);
  memory_[0] ^= std::byte{1};
  EXPECT_EQ(read(), data_);
  EXPECT_EQ(foreign_->mismatches(), 0u);
}

TEST_F(DecodedStateTest, DoesNotReadReleasedMemory) {
  foreign_->release();
  memory_.assign(memory_.size(), std::byte{7});
  EXPECT_EQ(read(), data_);
  EXPECT_EQ(foreign_->found(), 0u);
}

TEST_F(DecodedStateTest, ReadsStreamsFromMemoryThatTheSystemMayTake) {
  const auto kept = std::make_shared<os::Pages>(os::allocate_spare_pages(data_.size()));
  ASSERT_NE(*kept, nullptr);
  std::memcpy(kept->get(), data_.data(), data_.size());
  os::offer_pages(kept->get(), data_.size());
  const auto state = std::make_shared<DecodedState>(*snapshot_, std::vector<const std::byte*>{kept->get()}, kept);
  EXPECT_TRUE(state->is_complete());
  attach_decoded(*snapshot_, state);
  EXPECT_EQ(read(), data_);
  const std::size_t begin = 4 * kChunkElements - 3;
  Bytes out(100);
  ASSERT_TRUE(snapshot_->read_bytes(0, begin, out).has_value());
  EXPECT_TRUE(std::equal(out.begin(), out.end(), data_.begin() + static_cast<std::ptrdiff_t>(begin)));
  // As if the system had taken a page.
  std::memset(kept->get() + 4 * kChunkElements, 0, 4096);
  EXPECT_EQ(read(), data_);
  EXPECT_EQ(state->mismatches(), 1U);
  // A sample is not checked, and counts as no mismatch.
  Bytes sample(8);
  ASSERT_TRUE(snapshot_->sample_elements(0, kChunkElements, sample));
  EXPECT_EQ(sample, Bytes(8));
  ASSERT_TRUE(snapshot_->sample_elements(0, 5, sample));
  EXPECT_TRUE(std::equal(sample.begin(), sample.end(), data_.begin() + 20));
  EXPECT_FALSE(snapshot_->sample_elements(0, data_.size() / 4 - 1, sample));
  EXPECT_FALSE(snapshot_->sample_elements(1, 0, sample));
  EXPECT_EQ(state->mismatches(), 1U);
  state->release();
  EXPECT_FALSE(snapshot_->sample_elements(0, 5, sample));
  EXPECT_FALSE(state->copy_chunk(0, 0, out));
}

TEST(DecodedPool, IsGatheredFromItsTensorsChunkByChunk) {
  StateBuilder builder;
  std::vector<Bytes> memory;
  Bytes all;
  for (std::uint64_t i = 0; i < 300; ++i) {
    memory.push_back(random_bytes(1000 + 7 * i, i));
    builder.add_pooled("t" + std::to_string(i), DType::u8, memory.back());
    all.insert(all.end(), memory.back().begin(), memory.back().end());
  }
  const Bytes file = builder.build();
  const auto log = std::make_shared<ReadLog>();
  os::FakeFileSystem no_files;
  const auto snapshot = open_snapshot(std::make_unique<MemoryFile>("x.bsnap", file, log), {}, no_files).value();
  std::vector<ConstByteSpan> tensors(memory.begin(), memory.end());
  const auto foreign = std::make_shared<DecodedState>(*snapshot, tensors, nullptr);
  EXPECT_TRUE(foreign->is_complete());
  Bytes out(kChunkElements);
  ASSERT_TRUE(foreign->copy_chunk(0, 1, out));
  EXPECT_TRUE(std::equal(out.begin(), out.end(), all.begin() + kChunkElements));
  out.resize(all.size() - 2 * kChunkElements);
  ASSERT_TRUE(foreign->copy_chunk(0, 2, out));
  EXPECT_TRUE(std::equal(out.begin(), out.end(), all.begin() + 2 * kChunkElements));
  EXPECT_FALSE(foreign->copy_chunk(0, 3, ByteSpan(out).first(0)));
  EXPECT_FALSE(foreign->copy_chunk(0, 2, ByteSpan(out).first(1)));

  attach_decoded(*snapshot, foreign);
  const std::size_t reads = log->reads().size();
  memory[200][5] ^= std::byte{1};
  for (std::size_t i = 0; i < memory.size(); ++i) {
    Bytes tensor(memory[i].size());
    ASSERT_TRUE(snapshot->read_bytes(i, 0, tensor).has_value());
    EXPECT_EQ(tensor, builder.bytes_of(i));
  }
  EXPECT_GT(foreign->mismatches(), 0u);
  EXPECT_GT(log->reads().size(), reads);

  tensors[7] = {};
  EXPECT_FALSE(DecodedState(*snapshot, tensors, nullptr).is_complete());
}

TEST_F(DecodedStateTest, VerifiesTheFileAlone) {
  const auto damages = snapshot_->verify();
  ASSERT_TRUE(damages.has_value());
  EXPECT_TRUE(damages->empty());
  EXPECT_GE(log_->reads().size(), opened_reads_ + 3);
}

}  // namespace
}  // namespace bitsnap::restore
