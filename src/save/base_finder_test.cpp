// Tests of where earlier bytes are looked for: in one base, and among the shards of a checkpoint.
#include "save/base_finder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/try.hpp"

namespace bitsnap::save {
namespace {

using Opening = ShardedBases::Opening;

// A base that has tensors and streams, without data.
class ListedBase final : public Base {
 public:
  ListedBase(std::uint64_t number, std::vector<TensorInfo> tensors, std::uint64_t pool_bytes = 0)
      : id_{number, 0}, name_("shard-" + std::to_string(number)), tensors_(std::move(tensors)) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].alias_of || tensors_[i].size_bytes == 0) continue;
      stream_of_[i] = streams_.size();
      streams_.push_back({tensors_[i].dtype, tensors_[i].element_count(), i});
    }
    if (pool_bytes > 0) streams_.push_back({DType::u8, pool_bytes, std::nullopt});
  }

  [[nodiscard]] SnapshotId id() const noexcept override { return id_; }
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] std::span<const TensorInfo> tensors() const noexcept override { return tensors_; }
  [[nodiscard]] std::span<const StreamInfo> streams() const noexcept override { return streams_; }
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const noexcept override {
    const auto at = std::ranges::find(tensors_, name, &TensorInfo::name);
    if (at == tensors_.end()) return std::nullopt;
    return static_cast<std::size_t>(at - tensors_.begin());
  }
  [[nodiscard]] std::optional<std::size_t> stream_of(std::size_t tensor) const noexcept override {
    const auto at = stream_of_.find(tensor);
    if (at == stream_of_.end()) return std::nullopt;
    return at->second;
  }
  [[nodiscard]] Result<void> read_elements(std::size_t, std::uint64_t, std::span<std::byte>,
                                           ReadContext&) const override {
    return fail(ErrorKind::internal, "the finder must not read");
  }
  [[nodiscard]] Result<ChunkHolder> holder(std::size_t, std::uint64_t) const override {
    return fail(ErrorKind::internal, "the finder must not read");
  }

 private:
  SnapshotId id_;
  std::string name_;
  std::vector<TensorInfo> tensors_;
  std::vector<StreamInfo> streams_;
  std::map<std::size_t, std::size_t> stream_of_;
};

TensorInfo tensor(std::string name, DType dtype, std::vector<std::uint64_t> shape,
                  std::optional<ShardBox> shard = std::nullopt) {
  TensorInfo info;
  info.name = std::move(name);
  info.dtype = dtype;
  info.dtype_name = dtype_name(dtype);
  info.size_bytes = shape_size_bytes(dtype, shape).value();
  info.shape = std::move(shape);
  info.shard = std::move(shard);
  return info;
}

StreamInfo stream_for(const TensorInfo& info) { return {info.dtype, info.element_count(), 0}; }

StreamInfo pool_of(std::uint64_t size_bytes) { return {DType::u8, size_bytes, std::nullopt}; }

std::shared_ptr<const Base> base_of(std::uint64_t number, std::vector<TensorInfo> tensors,
                                    std::uint64_t pool_bytes = 0) {
  return std::make_shared<ListedBase>(number, std::move(tensors), pool_bytes);
}

bool matches(const TensorInfo& theirs, const TensorInfo& ours) {
  SingleBase finder(base_of(1, {tensor("other", DType::u8, {5000}), theirs}));
  const auto found = finder.find(ours, stream_for(ours)).value();
  if (found) {
    EXPECT_EQ(found->stream, 1U);
    EXPECT_EQ(found->base->id(), (SnapshotId{1, 0}));
  }
  return found.has_value();
}

TEST(BaseFinder, MatchesWholeTensorsByNameDtypeAndNumberOfElements) {
  const TensorInfo ours = tensor("w", DType::bf16, {10, 600});
  EXPECT_TRUE(matches(tensor("w", DType::bf16, {10, 600}), ours));
  EXPECT_TRUE(matches(tensor("w", DType::bf16, {6000}), ours));
  EXPECT_FALSE(matches(tensor("v", DType::bf16, {10, 600}), ours));
  EXPECT_FALSE(matches(tensor("w", DType::f16, {10, 600}), ours));
  EXPECT_FALSE(matches(tensor("w", DType::bf16, {10, 601}), ours));
}

TEST(BaseFinder, MatchesOpaqueTensorsByTheNameOfTheDtype) {
  TensorInfo ours = tensor("w", DType::opaque, {5000});
  ours.dtype_name = "F4";
  TensorInfo theirs = ours;
  EXPECT_TRUE(matches(theirs, ours));
  theirs.dtype_name = "F6_E2M3";
  EXPECT_FALSE(matches(theirs, ours));
}

TEST(BaseFinder, MatchesTheSamePartOfAShardedTensorOnly) {
  const TensorInfo ours = tensor("w", DType::f32, {100, 20}, ShardBox{{400, 20}, {100, 0}});
  EXPECT_TRUE(matches(ours, ours));
  EXPECT_FALSE(matches(tensor("w", DType::f32, {100, 20}, ShardBox{{400, 20}, {200, 0}}), ours));
  EXPECT_FALSE(matches(tensor("w", DType::f32, {100, 20}, ShardBox{{800, 20}, {100, 0}}), ours));
  EXPECT_FALSE(matches(tensor("w", DType::f32, {200, 10}, ShardBox{{400, 20}, {100, 0}}), ours));
  EXPECT_FALSE(matches(tensor("w", DType::f32, {100, 20}), ours));
  EXPECT_FALSE(matches(ours, tensor("w", DType::f32, {100, 20})));
}

TEST(BaseFinder, MatchesAnAliasToTheTensorThatHasItsBytes) {
  std::vector<TensorInfo> tensors = {tensor("wte", DType::bf16, {6000}), tensor("head", DType::bf16, {6000})};
  tensors[1].alias_of = 0;
  SingleBase finder(base_of(1, tensors));
  const TensorInfo ours = tensor("head", DType::bf16, {6000});
  const auto found = finder.find(ours, stream_for(ours)).value();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->stream, 0U);
}

TEST(BaseFinder, MatchesPoolsOfTheSameSize) {
  SingleBase finder(base_of(1, {tensor("w", DType::bf16, {6000})}, 700));
  const auto found = finder.find_pool(pool_of(700)).value();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->stream, 1U);
  EXPECT_FALSE(finder.find_pool(pool_of(704)).value().has_value());
  SingleBase without_pool(base_of(1, {tensor("w", DType::u8, {700})}));
  EXPECT_FALSE(without_pool.find_pool(pool_of(700)).value().has_value());
  SingleBase empty(base_of(1, {}));
  EXPECT_FALSE(empty.find_pool(pool_of(700)).value().has_value());
}

// Shards in memory; notes which of them were opened to look, and which for use.
struct Shards {
  std::vector<std::shared_ptr<const Base>> bases;
  std::vector<std::uint32_t> looked_at = {};
  std::vector<std::uint32_t> opened = {};

  // `shards`: the number of shards that are being saved; 0: as many as there are bases.
  ShardedBases finder(std::uint32_t own_shard, std::uint32_t shards = 0) {
    const auto here = static_cast<std::uint32_t>(bases.size());
    return ShardedBases(here, {own_shard, shards == 0 ? here : shards},
                        [this](std::uint32_t shard, Opening opening) -> Result<std::shared_ptr<const Base>> {
                          (opening == Opening::look ? looked_at : opened).push_back(shard);
                          return bases[shard];
                        });
  }
};

TensorInfo row(std::uint64_t number) { return tensor("w", DType::f32, {1, 5000}, ShardBox{{4, 5000}, {number, 0}}); }

Shards four_rows() {
  Shards shards;
  for (std::uint64_t i = 0; i < 4; ++i) {
    shards.bases.push_back(base_of(i, {row(i), tensor("everywhere", DType::u8, {5000})}, 64));
  }
  return shards;
}

std::optional<std::uint64_t> shard_of(BaseFinder& finder, const TensorInfo& ours) {
  const auto found = finder.find(ours, stream_for(ours)).value();
  if (!found) return std::nullopt;
  return found->base->id().low;
}

TEST(BaseFinder, OpensNoOtherShardForTensorsThatDidNotMove) {
  Shards shards = four_rows();
  ShardedBases finder = shards.finder(2);
  const std::vector<TensorInfo> ours = {row(2), tensor("everywhere", DType::u8, {5000})};
  finder.begin(ours);
  EXPECT_TRUE(shards.opened.empty());
  EXPECT_EQ(shard_of(finder, ours[0]), 2U);
  EXPECT_EQ(shard_of(finder, ours[1]), 2U);
  EXPECT_EQ(shards.opened, std::vector<std::uint32_t>{2});
  EXPECT_TRUE(shards.looked_at.empty());
}

TEST(BaseFinder, FindsAMovedTensorInTheNearestShard) {
  Shards shards = four_rows();
  ShardedBases finder = shards.finder(2);
  const std::vector<TensorInfo> ours = {row(1), row(3), tensor("new", DType::u8, {5000}), row(0)};
  finder.begin(ours);
  EXPECT_EQ(shard_of(finder, row(1)), 1U);
  EXPECT_EQ(shards.looked_at, (std::vector<std::uint32_t>{3, 1}));
  EXPECT_EQ(shard_of(finder, row(3)), 3U);
  EXPECT_EQ(shard_of(finder, tensor("new", DType::u8, {5000})), std::nullopt);
  EXPECT_EQ(shard_of(finder, row(0)), 0U);
  EXPECT_EQ(shards.looked_at, (std::vector<std::uint32_t>{3, 1, 0}));
  EXPECT_EQ(shards.opened, (std::vector<std::uint32_t>{2, 3, 1, 0}));
}

// A thousand ranks: each has a tensor of its own, and one that all have.
Shards thousand_shards() {
  Shards shards;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    shards.bases.push_back(
        base_of(i, {tensor("of-" + std::to_string(i), DType::u8, {5000}), tensor("everywhere", DType::u8, {5000})}));
  }
  return shards;
}

TensorInfo of_rank(std::uint64_t rank) { return tensor("of-" + std::to_string(rank), DType::u8, {5000}); }

TEST(BaseFinder, SearchesANewTensorInFewShards) {
  Shards shards = thousand_shards();
  ShardedBases finder = shards.finder(500);
  std::vector<TensorInfo> ours = {of_rank(500), tensor("everywhere", DType::u8, {5000})};
  for (int i = 0; i < 5; ++i) ours.push_back(tensor("new-" + std::to_string(i), DType::u8, {5000}));
  finder.begin(ours);
  for (const TensorInfo& info : ours) {
    EXPECT_EQ(shard_of(finder, info), info.name.starts_with("new") ? std::nullopt : std::optional<std::uint64_t>(500));
  }
  EXPECT_EQ(shards.opened, std::vector<std::uint32_t>{500});
  EXPECT_EQ(shards.looked_at, (std::vector<std::uint32_t>{501, 499, 502, 498, 503, 497, 504, 496}));
}

TEST(BaseFinder, FindsNearbyTensorsIfNoTensorLeftTheShard) {
  Shards shards = thousand_shards();
  ShardedBases finder = shards.finder(500);
  const std::vector<TensorInfo> ours = {of_rank(500), of_rank(499), of_rank(504), of_rank(600),
                                        tensor("everywhere", DType::u8, {5000})};
  finder.begin(ours);
  EXPECT_EQ(shard_of(finder, of_rank(600)), std::nullopt);
  EXPECT_EQ(shard_of(finder, of_rank(504)), 504U);
  EXPECT_EQ(shard_of(finder, of_rank(499)), 499U);
  // Shards that hold something missing do not count.
  EXPECT_EQ(shards.looked_at.size(), ShardedBases::kLooksInVain + 2U);
  EXPECT_EQ(shards.opened, (std::vector<std::uint32_t>{500, 499, 504}));
}

TEST(BaseFinder, SearchesFartherIfATensorLeftTheShard) {
  Shards shards = thousand_shards();
  for (const bool is_swapped : {true, false}) {
    shards.looked_at.clear();
    // The tensor has another name, or is another part of the same sharded tensor.
    if (!is_swapped) {
      for (std::uint64_t i = 0; i < 1000; ++i) {
        shards.bases[i] = base_of(i, {tensor("w", DType::u8, {1, 5000}, ShardBox{{1000, 5000}, {i, 0}})});
      }
    }
    const auto of = [&](std::uint64_t rank) {
      return is_swapped ? of_rank(rank) : tensor("w", DType::u8, {1, 5000}, ShardBox{{1000, 5000}, {rank, 0}});
    };
    ShardedBases finder = shards.finder(500);
    const std::vector<TensorInfo> ours = {of(600)};
    finder.begin(ours);
    EXPECT_EQ(shard_of(finder, of(600)), 600U);
    EXPECT_LE(shards.looked_at.size(), 200U);
    EXPECT_EQ(shard_of(finder, tensor("new", DType::u8, {5000})), std::nullopt);
    EXPECT_EQ(shards.looked_at.size(), ShardedBases::kLooksInVainMoved + 1U);
  }
}

TEST(BaseFinder, StartsAtTheProportionalShardIfTheNumberOfRanksChanged) {
  Shards shards = thousand_shards();
  ShardedBases finder = shards.finder(100, 250);
  const std::vector<TensorInfo> ours = {of_rank(400), of_rank(401), of_rank(402), of_rank(403)};
  finder.begin(ours);
  for (const std::uint64_t rank : {400U, 401U, 402U, 403U}) EXPECT_EQ(shard_of(finder, of_rank(rank)), rank);
  EXPECT_EQ(shards.looked_at, (std::vector<std::uint32_t>{400, 401, 399, 402, 398, 403}));
}

TEST(BaseFinder, SearchesFartherIfTheNumberOfRanksChanged) {
  Shards shards = thousand_shards();
  ShardedBases finder = shards.finder(500, 1001);
  const std::vector<TensorInfo> ours = {of_rank(500), of_rank(600), tensor("everywhere", DType::u8, {5000})};
  finder.begin(ours);
  EXPECT_EQ(shard_of(finder, of_rank(600)), 600U);
}

TEST(BaseFinder, OpensNoFurtherShardsForTensorsThatWereFound) {
  Shards shards = thousand_shards();
  shards.bases[500] = base_of(500, {of_rank(500)});
  ShardedBases finder = shards.finder(500);
  const std::vector<TensorInfo> ours = {of_rank(500), tensor("everywhere", DType::u8, {5000}),
                                        tensor("new", DType::u8, {5000})};
  finder.begin(ours);
  EXPECT_EQ(shard_of(finder, ours[1]), 501U);
  EXPECT_EQ(shard_of(finder, ours[2]), std::nullopt);
  EXPECT_EQ(shards.opened, (std::vector<std::uint32_t>{500, 501}));
  EXPECT_EQ(shards.looked_at.size(), ShardedBases::kLooksInVain + 1U);
}

TEST(BaseFinder, OpensEachOfFewShardsOnce) {
  for (const std::uint32_t own : {0U, 1U, 3U, 7U}) {
    Shards shards = four_rows();
    ShardedBases finder = shards.finder(own, own == 7 ? 8 : 0);
    const std::vector<TensorInfo> ours = {tensor("new", DType::u8, {5000})};
    finder.begin(ours);
    EXPECT_EQ(shard_of(finder, ours[0]), std::nullopt);
    std::vector<std::uint32_t> looked_at = shards.looked_at;
    std::ranges::sort(looked_at);
    std::vector<std::uint32_t> others = {0, 1, 2, 3};
    std::erase(others, own);
    EXPECT_EQ(looked_at, others);
  }
}

TEST(BaseFinder, FindsTensorsButNoPoolForAnAddedShard) {
  Shards shards = four_rows();
  ShardedBases finder = shards.finder(7, 8);
  const std::vector<TensorInfo> ours = {row(3)};
  finder.begin(ours);
  EXPECT_FALSE(finder.find_pool(pool_of(64)).value().has_value());
  EXPECT_TRUE(shards.opened.empty());
  EXPECT_EQ(shard_of(finder, row(3)), 3U);
}

TEST(BaseFinder, DoesNotUseThePoolOfAnotherShard) {
  Shards shards = four_rows();
  shards.bases[1] = base_of(1, {row(1)});
  ShardedBases finder = shards.finder(1);
  EXPECT_FALSE(finder.find_pool(pool_of(64)).value().has_value());
  EXPECT_EQ(shards.opened, std::vector<std::uint32_t>{1});
  ShardedBases other = shards.finder(3);
  EXPECT_EQ(other.find_pool(pool_of(64)).value()->base->id().low, 3U);
}

TEST(BaseFinder, SkipsAShardWithoutABase) {
  Shards shards = four_rows();
  shards.bases[0] = nullptr;
  ShardedBases finder = shards.finder(0);
  const std::vector<TensorInfo> ours = {row(0), row(1)};
  finder.begin(ours);
  EXPECT_FALSE(finder.find_pool(pool_of(64)).value().has_value());
  EXPECT_EQ(shard_of(finder, row(1)), 1U);
  EXPECT_EQ(shard_of(finder, row(0)), std::nullopt);
}

TEST(BaseFinder, FailsIfAShardCannotBeOpened) {
  ShardedBases finder(3, {1, 3}, [](std::uint32_t shard, Opening) -> Result<std::shared_ptr<const Base>> {
    if (shard == 0) return fail(ErrorKind::corrupt, "shard 0 is damaged");
    return base_of(shard, {row(shard)});
  });
  EXPECT_EQ(shard_of(finder, row(1)), 1U);
  const auto found = finder.find(row(2), stream_for(row(2)));
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().kind(), ErrorKind::corrupt);
  EXPECT_EQ(found.error().message(), "shard 0 is damaged");
}

}  // namespace
}  // namespace bitsnap::save
