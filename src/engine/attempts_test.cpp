// Attempts of ranks that start, save, die and restart in any order, checked against a model.
#include "engine/attempts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace bitsnap::engine {
namespace {

// Records all events and checks after each save that the attempt mixes no restarts.
class Model {
 public:
  explicit Model(std::uint32_t ranks, std::string session = "")
      : attempts_(std::move(session), "a"), trainers_(ranks), is_alive_(ranks) {}

  void hello(std::uint32_t rank) {
    attempts_.note_hello(rank);
    trainers_[rank].push_back({++now_, std::nullopt});
    is_alive_[rank] = true;
  }

  void death(std::uint32_t rank) {
    attempts_.note_death(rank);
    trainers_[rank].back().died = ++now_;
    is_alive_[rank] = false;
  }

  std::string save(std::uint64_t step, std::uint32_t rank) {
    ++now_;
    const std::string name = attempts_.join(step, rank);
    const auto [known, is_new] = steps_.try_emplace(name, step);
    EXPECT_EQ(known->second, step) << name << " is of two steps";
    std::map<std::uint32_t, std::size_t>& shards = shards_[name];
    EXPECT_FALSE(shards.contains(rank)) << "rank " << rank << " twice in " << name;
    for (const auto& [other, trainer] : shards) {
      const Trainer& theirs = trainers_[other][trainer];
      // No shard is of a trainer that died before this rank's trainer said hello.
      EXPECT_TRUE(!theirs.died || *theirs.died > trainers_[rank].back().began)
          << name << " has a shard of rank " << other << " that died before rank " << rank << " came";
    }
    shards[rank] = trainers_[rank].size() - 1;
    return name;
  }

  [[nodiscard]] bool is_alive(std::uint32_t rank) const { return is_alive_[rank]; }
  [[nodiscard]] std::size_t shards_of(const std::string& name) const { return shards_.at(name).size(); }
  Attempts& attempts() { return attempts_; }

 private:
  struct Trainer {
    std::uint64_t began = 0;
    std::optional<std::uint64_t> died;
  };

  Attempts attempts_;
  std::uint64_t now_ = 0;
  std::vector<std::vector<Trainer>> trainers_;
  std::vector<bool> is_alive_;
  std::map<std::string, std::uint64_t> steps_;
  std::map<std::string, std::map<std::uint32_t, std::size_t>> shards_;
};

TEST(Attempts, NeverMixShardsOfRestartsThatDidNotOverlap) {
  for (std::uint32_t seed = 0; seed < 4000; ++seed) {
    std::mt19937 random(seed);
    const std::uint32_t ranks = 2 + seed % 3;
    Model model(ranks);
    for (int event = 0; event < 40; ++event) {
      const auto rank = static_cast<std::uint32_t>(random() % ranks);
      if (!model.is_alive(rank)) {
        model.hello(rank);
      } else if (random() % 3 == 0) {
        model.death(rank);
      } else {
        model.save(1 + random() % 3, rank);
      }
    }
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;

    // Whatever happened before: if all ranks restart and save a step, they share one attempt.
    std::vector<std::uint32_t> order;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      order.push_back(rank);
      if (model.is_alive(rank)) model.death(rank);
    }
    std::ranges::shuffle(order, random);
    for (const std::uint32_t rank : order) model.hello(rank);
    for (std::uint64_t step = 1; step <= 4; ++step) {
      std::ranges::shuffle(order, random);
      std::set<std::string> names;
      for (const std::uint32_t rank : order) names.insert(model.save(step, rank));
      ASSERT_EQ(names.size(), 1u) << "seed " << seed << ", step " << step;
      ASSERT_EQ(model.shards_of(*names.begin()), ranks);
    }
  }
}

TEST(Attempts, RunningRanksShareAnAttemptAfterEarlierDeaths) {
  for (std::uint32_t seed = 0; seed < 4000; ++seed) {
    std::mt19937 random(seed);
    const std::uint32_t ranks = 2 + seed % 3;
    Model model(ranks);
    std::set<std::uint32_t> has_saved;  // ranks whose present trainer has saved
    for (int event = 0; event < 25; ++event) {
      const auto rank = static_cast<std::uint32_t>(random() % ranks);
      if (!model.is_alive(rank)) {
        model.hello(rank);
        has_saved.erase(rank);
      } else if (random() % 2 == 0) {
        model.death(rank);
      } else {
        model.save(1, rank);
        has_saved.insert(rank);
      }
    }
    // Restarts the ranks that saved the step; the others keep running.
    std::vector<std::uint32_t> order;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if (model.is_alive(rank) && has_saved.contains(rank)) model.death(rank);
      if (!model.is_alive(rank)) model.hello(rank);
      order.push_back(rank);
    }
    std::ranges::shuffle(order, random);
    std::set<std::string> names;
    for (const std::uint32_t rank : order) names.insert(model.save(1, rank));
    ASSERT_EQ(names.size(), 1u) << "seed " << seed;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(Attempts, RanksJoinTheAttemptOfARankThatDiedAfterDelivering) {
  Model model(2);
  model.hello(0);
  model.hello(1);
  const std::string name = model.save(5, 0);
  model.death(0);
  EXPECT_EQ(model.save(5, 1), name);
}

TEST(Attempts, SavingAStepTwiceStartsAnotherAttempt) {
  Model model(2);
  model.hello(0);
  model.hello(1);
  const std::string first = model.save(5, 0);
  const std::string second = model.save(5, 0);
  EXPECT_NE(first, second);
  EXPECT_EQ(model.save(5, 1), second);
}

TEST(Attempts, CommittedAttemptsAreNotJoined) {
  Model model(3);
  for (std::uint32_t rank = 0; rank < 3; ++rank) model.hello(rank);
  const std::string first = model.save(5, 0);
  const std::string later = model.save(6, 0);
  model.attempts().note_committed(5, first);
  EXPECT_TRUE(model.attempts().was_committed(5, first));
  EXPECT_FALSE(model.attempts().was_committed(6, first));
  EXPECT_FALSE(model.attempts().was_committed(6, later));
  EXPECT_NE(model.save(5, 1), first);
  EXPECT_EQ(model.save(6, 1), later);
}

TEST(Attempts, AttemptNamesOfASessionAreTheSameForAllAgents) {
  Attempts here("s", "a");
  Attempts there("s", "b");
  here.note_hello(0);
  there.note_hello(1);
  EXPECT_EQ(here.join(5, 0), "s-1");
  EXPECT_EQ(there.join(5, 1), "s-1");
  EXPECT_EQ(here.join(6, 0), "s-1");
  EXPECT_EQ(here.join(5, 0), "s-2");
  EXPECT_EQ(there.join(5, 1), "s-2");
  // A restart with another session counts from 1 again.
  here.begin_restart("t");
  here.note_hello(0);
  EXPECT_EQ(here.join(5, 0), "t-1");
}

TEST(Attempts, TheNextSaveOfARankReplacesAFailedOne) {
  for (const std::string session : {"", "s"}) {
    Attempts attempts(session, "a");
    attempts.note_hello(0);
    attempts.note_hello(1);
    const std::string name = attempts.join(5, 0);
    EXPECT_EQ(attempts.join(5, 1), name);
    attempts.note_failed(5, 0, name);
    EXPECT_EQ(attempts.join(5, 0), name);
    // A failed save keeps its attempt if a later save has the next one.
    const std::string second = attempts.join(5, 0);
    EXPECT_NE(second, name);
    attempts.note_failed(5, 0, name);
    EXPECT_NE(attempts.join(5, 0), second);
  }
}

TEST(Attempts, FailuresBeforeARestartDoNotCount) {
  Attempts attempts("", "a");
  attempts.note_hello(0);
  attempts.note_hello(1);
  const std::string first = attempts.join(5, 0);
  attempts.note_death(0);
  attempts.note_hello(0);
  const std::string second = attempts.join(5, 0);
  EXPECT_NE(second, first);
  attempts.note_failed(5, 0, first);
  EXPECT_EQ(attempts.join(5, 1), second);
  EXPECT_NE(attempts.join(5, 0), second);
}

TEST(Attempts, RanksShareAnAttemptAfterManyUncommittedHigherSteps) {
  for (const std::string session : {"", "s"}) {
    Attempts attempts(session, "a");
    attempts.note_hello(0);
    attempts.note_hello(1);
    for (std::uint64_t step = 1'000'000; step < 1'140'000; ++step) static_cast<void>(attempts.join(step, 0));
    attempts.note_hello(0);
    const std::string first = attempts.join(1, 0);
    const std::string second = attempts.join(2, 0);
    EXPECT_EQ(attempts.join(1, 1), first);
    EXPECT_EQ(attempts.join(2, 1), second);
    EXPECT_NE(attempts.join(1, 0), first);
  }
}

TEST(Attempts, RanksGoOnWithoutAStep) {
  for (const std::string session : {"", "s"}) {
    Attempts attempts(session, "a");
    for (const std::uint32_t rank : {0U, 1U, 2U}) attempts.note_hello(rank);
    // Rank 1 is ahead, which says nothing of what it saves after this.
    static_cast<void>(attempts.join(9, 1));
    const std::string name = attempts.join(5, 0);
    const std::uint64_t joined = attempts.now();
    EXPECT_FALSE(attempts.has_gone_on(5, 0, name, joined, true));
    // A rank that delivered may go on; an earlier step is none to go on to.
    static_cast<void>(attempts.join(4, 1));
    static_cast<void>(attempts.join(5, 2));
    static_cast<void>(attempts.join(6, 2));
    EXPECT_FALSE(attempts.has_gone_on(5, 0, name, joined, true));
    static_cast<void>(attempts.join(6, 1));
    EXPECT_TRUE(attempts.has_gone_on(5, 0, name, joined, false));
    // Its next trainer may save the step.
    attempts.note_death(1);
    attempts.note_hello(1);
    EXPECT_FALSE(attempts.has_gone_on(5, 0, name, joined, true));
    attempts.note_left(1);
    EXPECT_FALSE(attempts.has_gone_on(5, 0, name, joined, false));
    EXPECT_TRUE(attempts.has_gone_on(5, 0, name, joined, true));
    // What left before this rank's trainer came belongs to an earlier run of the job.
    attempts.note_hello(0);
    EXPECT_FALSE(attempts.has_gone_on(5, 0, name, joined, true));
  }
}

TEST(Attempts, NamesOfTwoAgentsDiffer) {
  Attempts here("", "a");
  Attempts there("", "b");
  std::set<std::string> names;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    EXPECT_TRUE(names.insert(here.join(step, 0)).second);
    EXPECT_TRUE(names.insert(there.join(step, 0)).second);
  }
}

}  // namespace
}  // namespace bitsnap::engine
