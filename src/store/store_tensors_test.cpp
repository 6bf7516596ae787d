// Tensors across shards: the tensor index, and boxes of tensors that several shards hold.
#include <bitsnap/store.hpp>

#include <array>
#include <cstring>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/file_system_fake.hpp"
#include "store/run_testing.hpp"
#include "store/store_impl.hpp"
#include "store/tensor_index.hpp"

namespace bitsnap::store {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kRows = 96;
constexpr std::uint64_t kColumns = 64;

float value_at(std::uint64_t row, std::uint64_t column) { return static_cast<float>(row * kColumns + column); }

std::vector<std::byte> rows_of(std::uint64_t first, std::uint64_t count) {
  std::vector<float> values;
  for (std::uint64_t row = first; row < first + count; ++row) {
    for (std::uint64_t column = 0; column < kColumns; ++column) values.push_back(value_at(row, column));
  }
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> bytes_of(std::size_t size, int value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

class TensorsOfShards : public ::testing::Test {
 protected:
  // Rank r holds rows of "w", a replica of "shared", its own "rng", and a piece of "vector" in two tensors.
  void save(std::uint64_t step, std::uint32_t ranks) {
    StoreOptions options;
    options.access = StoreAccess::shared;
    store_ = open_store(files_, "/run", options).value();
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      TestState state;
      const std::uint64_t rows = kRows / ranks;
      state.add_rows("w", DType::f32, rows_of(rank * rows, rows), kColumns, rank * rows, kRows);
      state.add("shared", DType::u8, bytes_of(5000, 7));
      state.add("rng", DType::u8, bytes_of(5000, static_cast<int>(rank)));
      state.add("step", DType::u8, bytes_of(1, 3));
      State given = state.state();
      const auto add_piece = [&](const std::string& name, std::uint64_t offset) {
        given.tensors.push_back(given.tensors[0]);
        TensorInfo& info = given.tensors.back().info;
        info.name = name;
        info.shape = {4};
        info.size_bytes = 16;
        info.shard = ShardBox{{8 * std::uint64_t{ranks}}, {offset}, "vector"};
      };
      add_piece("vector/a", 8 * std::uint64_t{rank});
      add_piece("vector/b", 8 * std::uint64_t{rank} + 4);
      ASSERT_TRUE(store_->save_shard(step, {rank, ranks, "a"}, given)) << rank;
    }
    ASSERT_TRUE(store_->commit(step, ranks, "a").value());
  }
  // Opens the store again: a handle caches the tensors that it listed last.
  void open_again() { store_ = open_store(files_, "/run", {.access = StoreAccess::shared}).value(); }
  std::string read_rows(std::uint64_t step, std::vector<std::uint64_t> offset, std::vector<std::uint64_t> extent) {
    std::vector<float> out(extent[0] * extent[1], -1);
    const TensorBox box{"w",
                        "F32",
                        offset,
                        extent,
                        std::as_writable_bytes(std::span(out)).data(),
                        {static_cast<std::int64_t>(extent[1] * 4), 4}};
    const auto read = store_->read_boxes(step, {&box, 1});
    if (!read) return read.error().message();
    for (std::uint64_t i = 0; i < out.size(); ++i) {
      if (out[i] != value_at(offset[0] + i / extent[1], offset[1] + i % extent[1])) return "another value";
    }
    return "";
  }

  os::FakeFileSystem files_;
  std::unique_ptr<Store> store_;
};

TEST_F(TensorsOfShards, AreListedWithTheirParts) {
  save(1, 2);
  const auto tensors = store_->tensors(1).value();
  std::vector<std::string> names;
  for (const GlobalTensor& tensor : *tensors) names.push_back(tensor.name);
  EXPECT_THAT(names,
              // The pools differ, but the bytes of "step" are equal.
              ::testing::ElementsAre("w", "shared", "rank-0/rng", "rank-1/rng", "step", "vector"));
  const GlobalTensor& w = tensors->front();
  EXPECT_EQ(w.shape, (std::vector<std::uint64_t>{kRows, kColumns}));
  EXPECT_EQ(w.parts, (std::vector<TensorPart>{{0, 0, {0, 0}, {48, 64}}, {1, 0, {48, 0}, {48, 64}}}));
  EXPECT_EQ((*tensors)[1].parts.size(), 1U);
  EXPECT_EQ((*tensors)[3].parts, (std::vector<TensorPart>{{1, 2, {0}, {5000}}}));
  EXPECT_EQ(tensors->back().shape, (std::vector<std::uint64_t>{16}));
  EXPECT_EQ(tensors->back().parts.size(), 4U);
}

TEST_F(TensorsOfShards, AreTheSameWithoutTheIndex) {
  save(1, 4);
  const auto before = *store_->tensors(1).value();
  ASSERT_TRUE(files_.remove("/run/checkpoints/0000000001/tensors.json"));
  open_again();
  EXPECT_EQ(*store_->tensors(1).value(), before);
  EXPECT_EQ(read_rows(1, {10, 3}, {70, 9}), "");
}

TEST_F(TensorsOfShards, AnIndexOfOtherShardsIsIgnored) {
  save(1, 2);
  save(2, 2);
  const std::string path = "/run/checkpoints/0000000002/tensors.json";
  ASSERT_TRUE(files_.remove(path));
  ASSERT_TRUE(files_.rename("/run/checkpoints/0000000001/tensors.json", path));
  ASSERT_TRUE(files_.remove("/run/checkpoints/0000000002/shard-00001-of-00002.a.bsnap"));
  // The shards are equal to those of step 1, but files are opened only if the index does not tell.
  open_again();
  EXPECT_TRUE(store_->tensors(2));
  save(3, 4);
  ASSERT_TRUE(files_.rename(path, "/run/checkpoints/0000000003/tensors.json"));
  open_again();
  EXPECT_EQ(store_->tensors(3).value()->front().parts.size(), 4U);
}

TEST_F(TensorsOfShards, AnIndexThatNamesAnotherTensorIsNotBelieved) {
  save(1, 2);
  const RunLayout layout("/run");
  const CommitRecord record = read_commit_record(files_, layout, 1).value();
  // "rng" is a tensor of bytes: with the dtype of the index, more than the caller's memory would be written.
  std::vector<GlobalTensor> tensors = *store_->tensors(1).value();
  tensors.front().parts.front().tensor = 2;
  ASSERT_TRUE(write_tensor_index(files_, layout, record, tensors));
  open_again();
  EXPECT_THAT(read_rows(1, {0, 0}, {4, 64}), HasSubstr("tensor 2 is not the F32 of shape [48, 64]"));
  EXPECT_THAT(open_all_shards(*store_, 1).error().message(), HasSubstr("names parts of w that the shards do not hold"));
  tensors.front().parts.front().tensor = 99;
  ASSERT_TRUE(write_tensor_index(files_, layout, record, tensors));
  open_again();
  EXPECT_THAT(read_rows(1, {0, 0}, {4, 64}), HasSubstr("tensor 99 is not the F32"));
  EXPECT_EQ(open_all_shards(*store_, 1).error().kind(), ErrorKind::corrupt);
}

TEST_F(TensorsOfShards, AnyBoxIsReadFromTheShardsThatHoldIt) {
  save(1, 4);
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    const std::uint64_t row = random() % kRows;
    const std::uint64_t column = random() % kColumns;
    ASSERT_EQ(read_rows(1, {row, column}, {1 + random() % (kRows - row), 1 + random() % (kColumns - column)}), "");
  }
  // A box in one shard needs no other.
  open_again();
  ASSERT_TRUE(files_.remove("/run/checkpoints/0000000001/shard-00000-of-00004.a.bsnap"));
  EXPECT_EQ(read_rows(1, {24, 0}, {72, 64}), "");
  EXPECT_THAT(read_rows(1, {23, 0}, {2, 64}), HasSubstr("shard-00000-of-00004"));
}

TEST_F(TensorsOfShards, ACommitKeepsItsMetadata) {
  save(1, 2);
  EXPECT_TRUE(store_->checkpoint(1)->metadata.empty());
  const std::vector<std::pair<std::string, std::string>> metadata = {{"epoch", "3"}, {"\xC3\xA4", "\n"}};
  for (const std::uint32_t rank : {0U, 1U}) {
    ASSERT_TRUE(store_->save_shard(2, {rank, 2, "a"}, TestState(2, rank).state()));
  }
  EXPECT_EQ(store_->commit(2, 2, "a", {.metadata = {{"a", "1"}, {"a", "2"}}}).error().kind(),
            ErrorKind::invalid_argument);
  EXPECT_EQ(store_->commit(2, 2, "a", {.metadata = {{"a", "\xFF"}}}).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(store_->commit(2, 2, "a", {.metadata = metadata}).value().checkpoint->metadata, metadata);
  EXPECT_EQ(store_->checkpoint(2)->metadata, metadata);
  EXPECT_EQ(store_->checkpoints().value().back().metadata, metadata);
}

TEST_F(TensorsOfShards, WhatNoShardHoldsIsAnError) {
  save(1, 2);
  EXPECT_THAT(read_rows(1, {90, 0}, {7, 64}),
              HasSubstr("/run: step 1: tensor 'w' of shape [96, 64]: the box of extent [7, 64] at [90, 0] with 2 "
                        "strides does not lie in it"));
  EXPECT_THAT(read_rows(9, {0, 0}, {1, 1}), HasSubstr("step 9 not found"));
  const TensorBox unknown{"v", "F32", {}, {}, nullptr, {}};
  EXPECT_THAT(store_->read_boxes(1, {&unknown, 1}).error().message(), HasSubstr("there is no tensor 'v'"));
  const TensorBox other{"w", "F16", {0, 0}, {0, 0}, nullptr, {2, 2}};
  EXPECT_THAT(store_->read_boxes(1, {&other, 1}).error().message(),
              HasSubstr("it is F32, the memory to read into is F16"));

  StoreOptions options;
  options.access = StoreAccess::shared;
  for (const std::uint32_t rank : {0U, 1U}) {
    TestState state;
    state.add_rows("w", DType::f32, rows_of(rank * 40, 50), kColumns, rank * 40, kRows);
    ASSERT_TRUE(store_->save_shard(2, {rank, 2, "a"}, state.state()));
  }
  ASSERT_TRUE(store_->commit(2, 2, "a").value());
  EXPECT_THAT(read_rows(2, {0, 0}, {96, 64}), HasSubstr("shards 0 and 1 hold different values of the same elements"));
  EXPECT_THAT(read_rows(2, {80, 0}, {16, 64}), HasSubstr("the shards hold 640 of 1024 elements"));
  EXPECT_EQ(read_rows(2, {0, 0}, {40, 64}), "");
}

// In a pool the bytes of one tensor have no hash of their own.
TEST_F(TensorsOfShards, SmallBoxesThatDifferAreNotOne) {
  StoreOptions options;
  options.access = StoreAccess::shared;
  store_ = open_store(files_, "/run", options).value();
  for (const std::uint32_t rank : {0U, 1U, 2U}) {
    TestState state;
    state.add("rank", DType::u8, bytes_of(1 + rank, 1));  // so that the pools differ
    state.add_rows("w", DType::f32, rows_of(rank == 2 ? 1 : 0, 1), kColumns, 0, 1);
    ASSERT_TRUE(store_->save_shard(1, {rank, 3, "a"}, state.state()));
  }
  ASSERT_TRUE(store_->commit(1, 3, "a").value());
  EXPECT_EQ(store_->tensors(1).value()->back().parts,
            (std::vector<TensorPart>{{0, 1, {0, 0}, {1, 64}}, {2, 1, {0, 0}, {1, 64}}}));
}

}  // namespace
}  // namespace bitsnap::store
