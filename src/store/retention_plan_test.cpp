// plan_retention(): which checkpoints it keeps, needs and removes, on chains made up for the test.
#include "store/retention_plan.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>
#include <vector>

namespace bitsnap::store {
namespace {

using Steps = std::vector<std::uint64_t>;

StepNode node(std::uint64_t step, std::initializer_list<StepNode::Reference> references = {}) {
  StepNode made;
  made.step = step;
  made.references = references;
  return made;
}

StepNode::Reference whole(std::uint64_t step) { return {step, false}; }
StepNode::Reference alone(std::uint64_t step) { return {step, true}; }

Retention keeping(Steps steps) {
  Retention retention;
  retention.keep = std::move(steps);
  return retention;
}

Retention keeping_last(std::uint64_t count) {
  Retention retention;
  retention.keep_last = count;
  return retention;
}

Retention keeping_every(std::uint64_t steps) {
  Retention retention;
  retention.keep_every = steps;
  return retention;
}

Steps needed_steps(const RetentionPlan& plan) {
  Steps steps;
  for (const RetentionPlan::Needed& needed : plan.needed) steps.push_back(needed.step);
  return steps;
}

// Steps 1 and 5 are keyframes, each with a chain of three steps. All steps but the first link also refer to their
// keyframe directly.
std::vector<StepNode> two_chains() {
  return {node(1), node(2, {whole(1)}), node(3, {alone(1), whole(2)}), node(4, {alone(1), whole(3)}),
          node(5), node(6, {whole(5)}), node(7, {alone(5), whole(6)}), node(8, {alone(5), whole(7)})};
}

TEST(RetentionPlan, RejectsZero) {
  EXPECT_TRUE(check_retention({}));
  EXPECT_TRUE(check_retention(keeping_last(1)));
  EXPECT_TRUE(check_retention(keeping_every(1)));
  const auto none = check_retention(keeping_last(0));
  const auto zeroth = check_retention(keeping_every(0));
  ASSERT_FALSE(none);
  ASSERT_FALSE(zeroth);
  EXPECT_EQ(none.error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(zeroth.error().kind(), ErrorKind::invalid_argument);
}

TEST(RetentionPlan, DoesNothingInAnEmptyStore) {
  const RetentionPlan plan = plan_retention({}, {});
  EXPECT_EQ(plan.kept, Steps{});
  EXPECT_TRUE(plan.needed.empty());
  EXPECT_EQ(plan.removed, Steps{});
}

TEST(RetentionPlan, AlwaysKeepsTheNewest) {
  const RetentionPlan plan = plan_retention({node(1), node(2), node(3)}, {});
  EXPECT_EQ(plan.kept, Steps{3});
  EXPECT_EQ(plan.removed, (Steps{1, 2}));
}

TEST(RetentionPlan, KeepsStepsThatAnyRuleSelects) {
  std::vector<StepNode> nodes;
  for (std::uint64_t step = 0; step <= 12; ++step) nodes.push_back(node(step));
  Retention retention;
  retention.keep_last = 2;
  retention.keep_every = 5;
  retention.keep = {3, 99};
  const RetentionPlan plan = plan_retention(nodes, retention);
  EXPECT_EQ(plan.kept, (Steps{0, 3, 5, 10, 11, 12}));
  EXPECT_EQ(plan.removed, (Steps{1, 2, 4, 6, 7, 8, 9}));
}

TEST(RetentionPlan, CountsOnlyCheckpointsForKeepLast) {
  std::vector<StepNode> nodes = {node(1), node(2), node(3), node(4)};
  nodes[2].state = StepState::retired;
  nodes[3].state = StepState::uncommitted;
  const RetentionPlan plan = plan_retention(nodes, keeping_last(2));
  EXPECT_EQ(plan.kept, (Steps{1, 2}));
  EXPECT_EQ(plan.removed, (Steps{3})) << "the uncommitted one takes no part";
}

TEST(RetentionPlan, NeedsTheWholeChain) {
  const RetentionPlan plan = plan_retention(two_chains(), keeping({4}));
  EXPECT_EQ(plan.kept, (Steps{4, 8}));
  EXPECT_EQ(needed_steps(plan), (Steps{1, 2, 3, 5, 6, 7}));
  for (const RetentionPlan::Needed& needed : plan.needed) {
    EXPECT_EQ(needed.by, needed.step < 5 ? 4U : 8U);
    EXPECT_TRUE(needed.whole) << needed.step;
  }
  EXPECT_EQ(plan.removed, Steps{});
}

TEST(RetentionPlan, NeedsNothingBehindAStandaloneReference) {
  const std::vector<StepNode> nodes = {node(1), node(2, {whole(1)}), node(3, {alone(2)})};
  const RetentionPlan plan = plan_retention(nodes, {});
  ASSERT_EQ(needed_steps(plan), Steps{2});
  EXPECT_FALSE(plan.needed[0].whole);
  EXPECT_EQ(plan.removed, Steps{1});
}

TEST(RetentionPlan, FollowsBothKindsOfReferences) {
  for (const bool standalone_first : {true, false}) {
    const StepNode last = standalone_first ? node(4, {alone(2), whole(3)}) : node(4, {whole(3), alone(2)});
    const std::vector<StepNode> nodes = {node(1), node(2, {whole(1)}), node(3, {whole(2)}), last};
    const RetentionPlan plan = plan_retention(nodes, {});
    EXPECT_EQ(needed_steps(plan), (Steps{1, 2, 3}));
    for (const RetentionPlan::Needed& needed : plan.needed) EXPECT_TRUE(needed.whole) << needed.step;
  }
}

TEST(RetentionPlan, RemovesARetiredStepThatNothingNeeds) {
  std::vector<StepNode> nodes = two_chains();
  for (const std::size_t i : {0U, 1U, 4U}) nodes[i].state = StepState::retired;
  const RetentionPlan plan = plan_retention(nodes, keeping({1, 6}));
  EXPECT_EQ(plan.kept, (Steps{6, 8})) << "what is retired cannot be kept any more";
  EXPECT_EQ(needed_steps(plan), (Steps{5, 7}));
  EXPECT_EQ(plan.removed, (Steps{1, 2, 3, 4}));
}

TEST(RetentionPlan, KeepsDamagedStepsAndAllTheyMayReferTo) {
  std::vector<StepNode> nodes = two_chains();
  nodes[2].is_damaged = true;
  nodes[2].references.clear();
  const RetentionPlan plan = plan_retention(nodes, {});
  EXPECT_EQ(plan.kept, (Steps{3, 8}));
  EXPECT_EQ(needed_steps(plan), (Steps{1, 2, 4, 5, 6, 7}));
  EXPECT_TRUE(plan.removed.empty());
}

TEST(RetentionPlan, RemovesStepsAfterThoseThatReferToThem) {
  // 1 and 2 are coded against 3, and 4 against 3, too; 6 stays.
  const std::vector<StepNode> nodes = {node(1, {whole(2)}), node(2, {whole(3)}), node(3),
                                       node(4, {whole(3)}), node(5, {whole(6)}), node(6)};
  EXPECT_EQ(removal_order(nodes, {1, 2, 3, 4, 5}), (Steps{5, 4, 1, 2, 3}));
  const RetentionPlan plan = plan_retention(nodes, keeping({1}));
  EXPECT_EQ(plan.kept, (Steps{1, 6}));
  EXPECT_EQ(needed_steps(plan), (Steps{2, 3}));
  EXPECT_EQ(plan.removed, (Steps{4, 5}));
}

TEST(RetentionPlan, NeedsAllStepsBeforeANeededDamagedStep) {
  std::vector<StepNode> nodes = {node(1), node(2), node(3), node(4, {whole(3)})};
  nodes[2].state = StepState::retired;
  nodes[2].is_damaged = true;
  EXPECT_EQ(needed_steps(plan_retention(nodes, {})), (Steps{1, 2, 3}));
  nodes[3].references = {alone(3)};
  EXPECT_EQ(needed_steps(plan_retention(nodes, {})), (Steps{3})) << "standalone: nothing behind it is read";
}

TEST(RetentionPlan, IgnoresReferencesToMissingSteps) {
  const RetentionPlan plan = plan_retention({node(2, {whole(1), alone(0)}), node(3, {whole(2)})}, {});
  EXPECT_EQ(plan.kept, Steps{3});
  EXPECT_EQ(needed_steps(plan), Steps{2});
}

TEST(RetentionPlan, FollowsLongChainsWithoutRecursion) {
  std::vector<StepNode> nodes = {node(0)};
  for (std::uint64_t step = 1; step <= 200'000; ++step) nodes.push_back(node(step, {whole(step - 1)}));
  EXPECT_EQ(plan_retention(nodes, {}).needed.size(), 200'000U);
}

}  // namespace
}  // namespace bitsnap::store
