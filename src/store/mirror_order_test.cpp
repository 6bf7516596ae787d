// The order in which a copy becomes what the run is, and what of it can come if some steps cannot.
#include "store/mirror_order.hpp"

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bitsnap::store {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

struct Needs {
  std::uint64_t step;
  std::uint64_t id;
};

// A checkpoint of one file with this id.
MirroredStep of(std::uint64_t id, const std::vector<Needs>& needs = {}) {
  ShardFile file;
  file.file = "shard-00000-of-00001.bsnap";
  file.id = SnapshotId{id, id};
  file.depth = needs.empty() ? 0 : 1;
  for (const Needs& each : needs) file.references.push_back({SnapshotId{each.id, each.id}, each.step, 0, false});
  MirroredStep step;
  step.record.shards.push_back(std::move(file));
  return step;
}

TEST(MirrorOrder, CheckpointsComeBeforeOthersGo) {
  EXPECT_THAT(mirror_order({{1, of(10)}, {2, of(20)}}, {{2, of(20)}, {3, of(30, {{2, 20}})}, {4, of(40, {{3, 30}})}}),
              ElementsAre(ElementsAre(3), ElementsAre(4), ElementsAre(1)));
}

TEST(MirrorOrder, StepsThatWaitForEachOtherAreOneGroup) {
  // 1 may not change before 2, which needs it as it was; 2 waits for 3, and 3 for 1.
  const MirroredSteps copy = {{1, of(10)}, {2, of(20, {{1, 10}})}};
  const MirroredSteps wanted = {
      {1, of(11)}, {2, of(21, {{3, 30}})}, {3, of(30, {{1, 11}})}, {4, of(40, {{3, 30}})}, {5, of(50)}};
  EXPECT_THAT(mirror_order(copy, wanted), ElementsAre(ElementsAre(5), UnorderedElementsAre(1, 2, 3), ElementsAre(4)));
}

TEST(MirrorOrder, WhatIsHeldBackKeepsWhatItNeeds) {
  // 2 would be coded against 3, so that 1 could go.
  const MirroredSteps copy = {{1, of(10)}, {2, of(20, {{1, 10}})}};
  const MirroredSteps wanted = {{2, of(21, {{3, 30}})}, {3, of(30)}, {4, of(40, {{2, 21}})}, {5, of(50, {{3, 30}})}};
  std::set<std::uint64_t> held = {2};
  const MirroredSteps possible = hold_back(copy, wanted, held);
  EXPECT_EQ(possible, MirroredSteps({{1, of(10)}, {2, of(20, {{1, 10}})}, {3, of(30)}, {5, of(50, {{3, 30}})}}));
  EXPECT_THAT(held, ElementsAre(1, 2, 4));
}

TEST(MirrorOrder, NoCheckpointGoesIfTheNewestOneIsHeldBack) {
  std::set<std::uint64_t> held = {2};
  EXPECT_EQ(hold_back({{1, of(10)}}, {{2, of(20)}}, held), MirroredSteps({{1, of(10)}}));
}

}  // namespace
}  // namespace bitsnap::store
