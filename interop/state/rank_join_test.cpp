#include "interop/state/rank_join.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <bitsnap/value.hpp>

namespace bitsnap::interop {
namespace {

// A U8 tensor of `size` elements that are all `byte`; with an offset, a box of a tensor of 4 elements.
TensorSource tensor(const std::string& name, std::size_t size, int byte, std::optional<std::uint64_t> offset = {}) {
  TensorSource source;
  source.info = {.name = name,
                 .dtype = DType::u8,
                 .dtype_name = "U8",
                 .shape = {size},
                 .size_bytes = size,
                 .role = Role::other,
                 .shard = {},
                 .alias_of = {}};
  if (offset) source.info.shard = ShardBox{{4}, {*offset}};
  source.read = [byte](std::uint64_t, std::span<std::byte> out) -> Result<void> {
    std::ranges::fill(out, static_cast<std::byte>(byte));
    return {};
  };
  return source;
}

GlobalTensor global(const std::string& name, std::uint64_t size, std::vector<TensorPart> parts) {
  return {name, DType::u8, "U8", {size}, Role::other, std::move(parts)};
}

// Two ranks: halves of w, a generator each, and the tree that is given as JSON.
std::vector<StateParts> ranks_with(const std::string& first, const std::string& second) {
  std::vector<StateParts> ranks(2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ranks[rank].tensors = {tensor("w", 2, 1 + static_cast<int>(rank), 2 * rank), tensor("rng", 3, 7)};
    auto tree = parse_value(rank == 0 ? first : second, 2);
    EXPECT_TRUE(tree) << tree.error().message();
    ranks[rank].tree = *std::move(tree);
  }
  return ranks;
}

const std::vector<GlobalTensor> kTensors = {global("w", 4, {{0, 0, {0}, {2}}, {1, 0, {2}, {2}}}),
                                            global("rank-0/rng", 3, {{0, 1, {0}, {3}}}),
                                            global("rank-1/rng", 3, {{1, 1, {0}, {3}}})};

std::string joined_tree(const std::string& first, const std::string& second) {
  const auto joined = join_ranks(ranks_with(first, second), kTensors);
  EXPECT_TRUE(joined) << joined.error().message();
  if (!joined || !joined->tree) return "none";
  return serialize_value(*joined->tree).value_or("");
}

TEST(RankJoin, TensorsAreWhole) {
  const auto joined = join_ranks(ranks_with("null", "null"), kTensors);
  ASSERT_TRUE(joined);
  ASSERT_EQ(joined->tensors.size(), 3U);
  std::vector<std::byte> bytes(4);
  ASSERT_TRUE(joined->tensors[0].read(0, bytes));
  EXPECT_EQ(bytes, (std::vector<std::byte>{std::byte{1}, std::byte{1}, std::byte{2}, std::byte{2}}));
}

TEST(RankJoin, ValuesThatDifferAreBelowKeysOfTheirRanks) {
  const std::string first = serialize_value(Value(ValueDict{{{Value("w"), Value(ValueTensor{0})},
                                                             {Value("rng"), Value(ValueTensor{1})},
                                                             {Value("lr"), Value(0.5)}}}))
                                .value();
  const auto joined = join_ranks(ranks_with(first, first), kTensors);
  ASSERT_TRUE(joined && joined->tree);
  const auto* dict = std::get_if<ValueDict>(&joined->tree->get());
  ASSERT_NE(dict, nullptr);
  std::vector<std::string> keys;
  for (const auto& [key, value] : dict->entries) keys.push_back(std::get<std::string>(key.get()));
  EXPECT_EQ(keys, (std::vector<std::string>{"w", "lr", "rank-0/rng", "rank-1/rng"}));
  EXPECT_EQ(std::get<ValueTensor>(dict->entries[3].second.get()).index, 2U);
}

TEST(RankJoin, KeysThatLookLikeThoseOfRanksStayApart) {
  const auto dict = [](double rate) {
    return serialize_value(Value(ValueDict{{{Value("rank-0/lr"), Value(1.0)}, {Value("lr"), Value(rate)}}})).value();
  };
  const std::string joined = joined_tree(dict(0.5), dict(0.25));
  EXPECT_EQ(joined, serialize_value(Value(ValueDict{{{Value("rank-0/lr"), Value(1.0)},
                                                     {Value("rank-0/lr#2"), Value(0.5)},
                                                     {Value("rank-1/lr"), Value(0.25)}}}))
                        .value());
}

TEST(RankJoin, StatesThatAreNoDictsAreJoinedIfTheyAreEqual) {
  EXPECT_EQ(joined_tree("[1,2]", "[1,2]"), "[1,2]");
  EXPECT_EQ(joined_tree("[1,2]", "[1,3]"), "none");
  const auto joined = join_ranks(ranks_with("[1,2]", "[1,3]"), kTensors);
  ASSERT_TRUE(joined);
  EXPECT_EQ(joined->left_out.size(), 2U);
}

TEST(RankJoin, AnIndexOfOtherTensorsIsCorrupt) {
  const auto kind_with = [](GlobalTensor changed) {
    std::vector<GlobalTensor> tensors = kTensors;
    tensors[0] = std::move(changed);
    const auto joined = join_ranks(ranks_with("null", "null"), tensors);
    return joined ? ErrorKind::internal : joined.error().kind();
  };
  const std::vector<TensorPart> parts = kTensors[0].parts;
  EXPECT_EQ(kind_with(global("w", 4, {parts[0], {2, 0, {2}, {2}}})), ErrorKind::corrupt);  // no such rank
  EXPECT_EQ(kind_with(global("w", 4, {parts[0], {1, 9, {2}, {2}}})), ErrorKind::corrupt);  // no such tensor
  EXPECT_EQ(kind_with(global("w", 5, {parts[0], {1, 0, {2}, {3}}})), ErrorKind::corrupt);  // of another shape
  GlobalTensor other = kTensors[0];
  other.dtype_name = "I8";
  EXPECT_EQ(kind_with(other), ErrorKind::corrupt);
  EXPECT_EQ(kind_with(global("w", 4, {parts[0]})), ErrorKind::invalid_argument);  // half of it is missing
}

}  // namespace
}  // namespace bitsnap::interop
