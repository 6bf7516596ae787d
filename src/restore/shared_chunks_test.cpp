// Tensors that depend on others of their file, alone and in chains: each payload is read once, however many chunks need
// it, and damage is reported for all chunks that depend on it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "os/file_system_fake.hpp"
#include "restore/open_snapshot.hpp"
#include "restore/read_context.hpp"
#include "restore/state_builder_testing.hpp"
#include "restore/verify_together.hpp"

namespace bitsnap::restore {
namespace {

using codec::CodecId;
using container::MemoryFile;
using container::ReadLog;

constexpr std::size_t kTiedElements = 3 * kChunkElements + 1000;

// Masters whose lower halves are zero, so that weights are their upper halves.
Bytes masters(std::size_t elements, std::uint64_t seed) {
  Bytes bytes = random_bytes(4 * elements, seed);
  for (std::size_t i = 0; i < bytes.size(); i += 4) {
    bytes[i] = bytes[i + 1] = std::byte{0};
    bytes[i + 3] = std::byte{0x3C};
  }
  return bytes;
}

Bytes weights(const Bytes& masters, std::size_t first, std::size_t elements) {
  Bytes bytes(2 * elements);
  for (std::size_t i = 0; i < elements; ++i) std::memcpy(bytes.data() + 2 * i, masters.data() + 4 * (first + i) + 2, 2);
  return bytes;
}

// Snapshots of weight, other and master, each master coded against the one before, each weight against its master.
class SharedChunks : public ::testing::Test {
 protected:
  static constexpr std::size_t kWeight = 0;
  static constexpr std::size_t kOther = 1;
  static constexpr std::size_t kMaster = 2;
  static constexpr std::size_t kHalf = 3;

  explicit SharedChunks(std::size_t snapshots = 4) {
    Bytes master = masters(kTiedElements, 1);
    for (std::size_t i = 0; i < snapshots; ++i) {
      for (std::size_t at = 2 + i; at < master.size(); at += 4000) master[at / 4 * 4 + 2] ^= std::byte{4};
      auto builder = std::make_unique<StateBuilder>();
      Coding coding{CodecId::byte_group, {}, {}, 0};
      if (i > 0) coding.inputs = {{builder->add_base(*builders_.back(), ""), kMaster, 0}};
      const Bytes weight = weights(master, 0, kTiedElements);
      builder->add("weight", DType::bf16, weight, {CodecId::rounded_from, {{{}, kMaster, 0}}, {}, 1});
      builder->add("other", DType::u8, random_bytes(kChunkElements + 5, i + 10));
      builder->add("master", DType::f32, master, coding);
      builder->add("half", DType::bf16, weight, {CodecId::rounded_from, {{{}, kMaster, 0}}, {}, 1});
      files_.push_back(builder->build());
      builders_.push_back(std::move(builder));
    }
    open();
  }

  void open() {
    snapshots_.clear();
    logs_.clear();
    for (std::size_t i = 0; i < files_.size(); ++i) {
      auto bases = std::make_shared<MapBases>();
      if (i > 0) bases->add(snapshots_.back());
      OpenOptions options;
      options.bases = bases;
      logs_.push_back(std::make_shared<ReadLog>());
      auto opened =
          open_snapshot(std::make_unique<MemoryFile>(std::to_string(i), files_[i], logs_.back()), options, no_files_);
      ASSERT_TRUE(opened.has_value()) << opened.error().message();
      snapshots_.push_back(*opened);
      logs_.back()->clear();
    }
  }

  // The number of payloads that were read, by file.
  std::vector<std::size_t> reads() {
    std::vector<std::size_t> reads;
    for (const auto& log : logs_) {
      reads.push_back(log->reads().size());
      log->clear();
    }
    return reads;
  }

  static constexpr std::size_t kChunks = 4 + 2 + 4 + 4;

  os::FakeFileSystem no_files_;
  std::vector<std::unique_ptr<StateBuilder>> builders_;
  std::vector<Bytes> files_;
  std::vector<std::shared_ptr<ReadLog>> logs_;
  std::vector<std::shared_ptr<const Snapshot>> snapshots_;
};

TEST_F(SharedChunks, VerifyingReadsEachPayloadOnce) {
  for (const unsigned threads : {1U, 3U}) {
    RunOptions options;
    options.threads = threads;
    EXPECT_TRUE(snapshots_[0]->verify(true, options)->empty());
    EXPECT_EQ(reads(), (std::vector<std::size_t>{kChunks, 0, 0, 0}));
    EXPECT_TRUE(snapshots_[3]->verify(true, options)->empty());
    EXPECT_EQ(reads(), (std::vector<std::size_t>{4, 4, 4, kChunks}));
    EXPECT_TRUE(snapshots_[3]->verify(false, options)->empty());
    EXPECT_EQ(reads(), (std::vector<std::size_t>{0, 0, 0, kChunks}));
  }
}

TEST_F(SharedChunks, VerifyingAChainReadsEachPayloadOnce) {
  for (const unsigned threads : {1U, 3U}) {
    RunOptions options;
    options.threads = threads;
    std::uint64_t done = 0;
    std::uint64_t total = 0;
    options.progress = [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
      done = done_bytes;
      total = total_bytes;
      return true;
    };
    const auto damages = verify_together(snapshots_, options);
    ASSERT_TRUE(damages.has_value()) << damages.error().message();
    for (const auto& of_one : *damages) EXPECT_TRUE(of_one.empty());
    EXPECT_EQ(reads(), (std::vector<std::size_t>{kChunks, kChunks, kChunks, kChunks}));
    EXPECT_EQ(done, total);
    EXPECT_EQ(total, 4 * (kTiedElements * 8 + kChunkElements + 5));
  }
}

TEST_F(SharedChunks, ReadingTensorsReadsEachPayloadOnce) {
  for (const unsigned threads : {1U, 3U}) {
    RunOptions options;
    options.threads = threads;
    std::vector<Bytes> out;
    std::vector<Snapshot::ReadRequest> requests;
    for (std::size_t tensor = 0; tensor < 4; ++tensor) out.emplace_back(builders_[3]->bytes_of(tensor).size());
    for (std::size_t tensor = 0; tensor < 4; ++tensor) requests.push_back({tensor, out[tensor]});
    ASSERT_TRUE(snapshots_[3]->read(requests, options).has_value());
    for (std::size_t tensor = 0; tensor < 4; ++tensor) EXPECT_TRUE(out[tensor] == builders_[3]->bytes_of(tensor));
    EXPECT_EQ(reads(), (std::vector<std::size_t>{4, 4, 4, kChunks}));
    // Weights alone: the masters are read for both.
    ASSERT_TRUE(snapshots_[3]->read(std::vector{requests[kHalf], requests[kWeight]}, options).has_value());
    EXPECT_EQ(reads()[3], 16U);
  }
}

TEST_F(SharedChunks, ReadingARangeReadsOnlyItsInputs) {
  Bytes out(6);
  ASSERT_TRUE(snapshots_[3]->read_bytes(kWeight, (kChunkElements + 7) * 2, out).has_value());
  EXPECT_EQ(out, Bytes(builders_[3]->bytes_of(kWeight).begin() + (kChunkElements + 7) * 2,
                       builders_[3]->bytes_of(kWeight).begin() + (kChunkElements + 10) * 2));
  EXPECT_EQ(reads(), (std::vector<std::size_t>{1, 1, 1, 2}));
  ReadContext context;
  ASSERT_TRUE(snapshots_[3]->read_elements(kMaster, 5, std::span(out).first(4), context).has_value());
  EXPECT_EQ(reads(), (std::vector<std::size_t>{1, 1, 1, 1}));
  EXPECT_EQ(context.decodes(), 4U);
}

TEST_F(SharedChunks, DamageIsReportedForAllDependentsInFileOrder) {
  const auto& index = builders_[1]->index();
  const auto damage = [&](std::size_t stream, std::uint64_t chunk) {
    files_[1][index.chunks[index.streams.first_chunk[stream] + chunk].offset] ^= std::byte{1};
  };
  damage(kMaster, 2);
  damage(kOther, 1);
  damage(kHalf, 0);
  open();
  const std::vector<std::string> of_1 = {"tensor 'weight', chunk 2", "tensor 'other', chunk 1",
                                         "tensor 'master', chunk 2", "tensor 'half', chunk 0",
                                         "tensor 'half', chunk 2"};
  const std::vector<std::string> of_2 = {"tensor 'weight', chunk 2", "tensor 'master', chunk 2",
                                         "tensor 'half', chunk 2"};
  const auto places = [](const std::vector<Damage>& damages) {
    std::vector<std::string> found;
    for (const Damage& one : damages) found.push_back(one.where);
    return found;
  };
  for (const unsigned threads : {1U, 3U}) {
    RunOptions options;
    options.threads = threads;
    EXPECT_EQ(places(*snapshots_[0]->verify(true, options)), std::vector<std::string>());
    EXPECT_EQ(places(*snapshots_[1]->verify(true, options)), of_1);
    EXPECT_EQ(places(*snapshots_[2]->verify(true, options)), of_2);
    const auto together = verify_together(snapshots_, options);
    ASSERT_TRUE(together.has_value());
    EXPECT_EQ(places((*together)[0]), std::vector<std::string>());
    EXPECT_EQ(places((*together)[1]), of_1);
    EXPECT_EQ(places((*together)[2]), of_2);
    EXPECT_EQ(places((*together)[3]), of_2);
  }
}

TEST_F(SharedChunks, AContextNeverConfusesSnapshots) {
  ReadContext context;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    StateBuilder builder;
    const Bytes data = random_bytes(100, seed);
    builder.add("a", DType::u8, data);
    const auto opened = open_snapshot(std::make_unique<MemoryFile>("a", builder.build()), {}, no_files_);
    ASSERT_TRUE(opened.has_value());
    context.restart();
    context.expect_again(ReadContext::Expected::all);
    Bytes out(100);
    ASSERT_TRUE((*opened)->read_elements(0, 0, out, context).has_value());
    EXPECT_EQ(out, data);
  }
}

TEST(FlatBuffers, AreReadOnceExceptAtBatchBorders) {
  constexpr std::size_t kChunks = 9;
  constexpr std::size_t kSlice = 90'000;
  const Bytes flat = masters(kChunks * kChunkElements, 1);
  StateBuilder builder;
  builder.add("flat", DType::f32, flat);
  std::size_t slices = 0;
  for (std::size_t first = 17; first + kSlice <= kChunks * kChunkElements; first += kSlice, ++slices) {
    builder.add(std::to_string(first), DType::bf16, weights(flat, first, kSlice),
                {CodecId::rounded_from, {{{}, 0, first}}, {}});
  }
  os::FakeFileSystem no_files;
  auto log = std::make_shared<ReadLog>();
  const auto opened = open_snapshot(std::make_unique<MemoryFile>("a", builder.build(), log), {}, no_files);
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  for (const unsigned threads : {1U, 3U}) {
    RunOptions options;
    options.threads = threads;
    log->clear();
    EXPECT_TRUE((*opened)->verify(true, options)->empty());
    EXPECT_LE(log->reads().size(), slices + kChunks + kChunks / 3);
    log->clear();
    EXPECT_TRUE(verify_together(std::vector{*opened}, options)->front().empty());
    EXPECT_LE(log->reads().size(), slices + kChunks + kChunks / 3);
  }
}

}  // namespace
}  // namespace bitsnap::restore
