// choose_pattern() beside the best of all schedules of small runs, and the plans that follow from a pattern.
#include "store/coding_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace bitsnap::store {
namespace {

// What happens at one save.
struct Move {
  bool alone = true;   // the new checkpoint is standalone; otherwise it is coded against the newest standalone one
  bool again = false;  // the standalone one before it is then coded against it
};

// A run that keeps `kept` checkpoints and makes any moves. What is coded against a checkpoint that goes is coded
// against the next standalone one, or becomes standalone.
class DrawnRun {
 public:
  DrawnRun(const CodingShares& shares, std::uint64_t kept) : shares_(shares), kept_(kept) {}

  void save(Move move) {
    const auto base = std::find_if(run_.rbegin(), run_.rend(), [](const Checkpoint& each) { return !each.base; });
    const bool is_alone = move.alone || base == run_.rend() || base->number + kept_ <= next_;
    run_.push_back({.number = next_, .share = *shares_.alone, .base = std::nullopt});
    if (!is_alone) run_.back() = {next_, earlier_share(shares_, next_ - base->number), base->number};
    ++next_;
    written_ += run_.back().share;
    note_peak();
    while (run_.size() > kept_) remove_oldest();
    if (move.again && !run_.back().base && run_.size() > 1) code_before_again();
    held_ += held_now();
  }

  [[nodiscard]] double held() const { return static_cast<double>(held_) / static_cast<double>(next_ * kept_); }
  [[nodiscard]] double written() const { return static_cast<double>(written_) / static_cast<double>(next_); }
  [[nodiscard]] std::uint64_t peak() const { return peak_; }

 private:
  struct Checkpoint {
    std::uint64_t number = 0;
    std::uint64_t share = 0;
    std::optional<std::uint64_t> base;
  };

  [[nodiscard]] std::uint64_t held_now() const {
    std::uint64_t sum = 0;
    for (const Checkpoint& each : run_) sum += each.share;
    return sum;
  }
  void note_peak() { peak_ = std::max(peak_, held_now()); }

  void code(Checkpoint& checkpoint, std::optional<std::uint64_t> base) {
    const std::uint64_t share = base ? later_share(shares_) : *shares_.alone;
    peak_ = std::max(peak_, held_now() + share);  // the old file is removed when the new one is there
    checkpoint.share = share;
    checkpoint.base = base;
    written_ += checkpoint.share;
  }

  // All that is coded against it lies directly above it.
  void remove_oldest() {
    const std::uint64_t oldest = run_.front().number;
    for (std::size_t at = run_.size() - 1; at > 0; --at) {
      if (run_[at].base != oldest) continue;
      const auto later = std::find_if(run_.begin() + static_cast<std::ptrdiff_t>(at) + 1, run_.end(),
                                      [](const Checkpoint& each) { return !each.base; });
      code(run_[at], later == run_.end() ? std::nullopt : std::optional(later->number));
    }
    run_.pop_front();
  }

  void code_before_again() {
    Checkpoint& before = run_[run_.size() - 2];
    if (!before.base) code(before, run_.back().number);
  }

  const CodingShares shares_;
  const std::uint64_t kept_;
  std::deque<Checkpoint> run_;
  std::uint64_t next_ = 0;
  std::uint64_t held_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t peak_ = 0;
};

constexpr std::uint64_t kSaves = 60;  // a multiple of all periods below

DrawnRun repeat(const std::vector<Move>& moves, const CodingShares& shares, std::uint64_t kept,
                std::uint64_t saves = kSaves) {
  DrawnRun run(shares, kept);
  for (std::uint64_t save = 0; save < saves; ++save) run.save(moves[save % moves.size()]);
  return run;
}

// The least bytes per kept checkpoint of all moves that repeat after at most four saves.
double least_held(const CodingShares& shares, std::uint64_t kept) {
  const double most_written = static_cast<double>(*shares.alone) * 1.45;
  double least = 1e30;
  for (std::size_t period = 1; period <= 4; ++period) {
    std::vector<Move> moves(period);
    for (std::uint32_t drawn = 0; drawn < 1U << (2 * period); ++drawn) {
      bool is_new = true;  // coding again needs a standalone checkpoint
      for (std::size_t at = 0; at < period; ++at) {
        moves[at] = {(drawn >> (2 * at) & 1U) != 0, (drawn >> (2 * at) & 2U) != 0};
        is_new = is_new && (moves[at].alone || !moves[at].again);
      }
      if (!is_new) continue;
      const DrawnRun run = repeat(moves, shares, kept);
      if (run.written() <= most_written && run.peak() <= (kept + 1) * kShareUnit) least = std::min(least, run.held());
    }
  }
  return least;
}

std::vector<Move> moves_of(const CodingPattern& pattern) {
  std::vector<Move> moves(pattern.period, Move{.alone = false});
  moves.front() = {.alone = true, .again = pattern.backwards};
  return moves;
}

// Sizes from nearly no gain to nearly no change. Coding against a later checkpoint may take more.
std::vector<CodingShares> all_shares() {
  using Shares = std::vector<std::uint64_t>;  // in percent
  std::vector<CodingShares> all;
  for (const std::uint64_t alone : Shares{100, 81, 60}) {
    for (const std::uint64_t gained : Shares{1, 10, 18, 26, 40, 60, 75, 95}) {
      for (const std::uint64_t lost : Shares{0, 12}) {
        const std::uint64_t share = alone * kShareUnit / 100;
        const std::uint64_t earlier = share * (100 - gained) / 100;
        all.push_back({.alone = share, .earlier = earlier, .later = std::min(share, earlier * (100 + lost) / 100)});
      }
    }
  }
  return all;
}

// The states of a training take at most 85 % of their raw bytes. If a standalone checkpoint takes all of them, there is
// no room for what is written again, and the patterns leave more to other schedules.
TEST(CodingPlan, HoldsAtMostSixPercentMoreThanTheBestSchedule) {
  for (const CodingShares& shares : all_shares()) {
    for (std::uint64_t kept = 1; kept <= 5; ++kept) {
      const DrawnRun chosen = repeat(moves_of(choose_pattern(shares, kept)), shares, kept);
      const double most = *shares.alone == kShareUnit ? 1.2 : 1.06;
      EXPECT_LE(chosen.held(), least_held(shares, kept) * most)
          << *shares.alone << ' ' << *shares.earlier << ' ' << kept;
      EXPECT_LE(chosen.held(), static_cast<double>(*shares.alone));
      EXPECT_LE(chosen.peak(), (kept + 1) * kShareUnit);
    }
  }
}

TEST(CodingPlan, KnowsWhatAPatternCosts) {
  for (const CodingShares& shares : all_shares()) {
    for (std::uint64_t kept = 2; kept <= 6; ++kept) {
      for (std::uint64_t period = 1; period <= kept; ++period) {
        for (const bool backwards : {false, true}) {
          if (backwards && period > 1) continue;
          const CodingPattern pattern = {period, backwards};
          const DrawnRun run = repeat(moves_of(pattern), shares, kept, 240);
          const PatternCost cost = cost_of(pattern, shares, kept);
          // The run starts empty. What is coded again against the next checkpoint may take less than what it was.
          EXPECT_LE(run.held(), static_cast<double>(cost.held) * 1.06) << period << ' ' << kept;
          if (period < 3) {
            EXPECT_GE(run.held(), static_cast<double>(cost.held) * 0.94) << period << ' ' << kept;
          }
          EXPECT_NEAR(run.written(), static_cast<double>(cost.written), 0.03 * run.written()) << period << ' ' << kept;
          EXPECT_LE(run.peak(), cost.peak + kept) << period << ' ' << kept << ' ' << backwards;
        }
      }
    }
  }
}

TEST(CodingPlan, CodesBackwardsUntilItKnowsWhatThatTakes) {
  EXPECT_EQ(choose_pattern({}, 2), (CodingPattern{.period = 1, .backwards = true}));
  EXPECT_EQ(choose_pattern({.alone = kShareUnit / 2, .earlier = {}, .later = {}}, 5),
            (CodingPattern{.period = 1, .backwards = true}));
  EXPECT_EQ(choose_pattern({}, 1), CodingPattern{});  // there is nothing to code
}

StepNode sized(std::uint64_t step, std::uint64_t bytes, std::initializer_list<std::uint64_t> references = {}) {
  StepNode made;
  made.step = step;
  made.bytes = bytes;
  made.raw_bytes = 1000;
  for (const std::uint64_t reference : references) made.references.push_back({reference, true});
  return made;
}

TEST(CodingPlan, SeesWhatTheNewestOfEachKindTakes) {
  const std::vector<StepNode> nodes = {sized(1, 900),      sized(2, 500, {1}), sized(3, 800),
                                       sized(4, 400, {3}), sized(5, 300, {6}), sized(6, 700)};
  const CodingShares shares = shares_of(nodes);
  EXPECT_EQ(shares.alone, share_of(700, 1000));
  EXPECT_EQ(shares.earlier, share_of(400, 1000));
  EXPECT_EQ(shares.later, share_of(300, 1000));
}

TEST(CodingPlan, ForgetsWhatWasRememberedForLong) {
  std::vector<StepNode> nodes = {sized(1, 900)};
  nodes.front().coded_share = 77;
  nodes.front().coded_age = 3;
  EXPECT_EQ(shares_of(nodes).later, 77);
  EXPECT_EQ(shares_of(nodes).remembered_age, 3);
  nodes.front().coded_age = 12;
  EXPECT_EQ(shares_of(nodes).later, std::nullopt);
}

TEST(CodingPlan, CodesAPeriodAgainstItsFirst) {
  const CodingPattern pattern = {.period = 3};
  std::vector<StepNode> nodes = {sized(1, 900)};
  EXPECT_EQ(choose_base(nodes, {1}, pattern), 1);
  nodes.push_back(sized(2, 500, {1}));
  EXPECT_EQ(choose_base(nodes, {1, 2}, pattern), 1);
  EXPECT_EQ(choose_base(nodes, {2}, pattern), std::nullopt);  // its base goes
  nodes.push_back(sized(3, 500, {1}));
  EXPECT_EQ(choose_base(nodes, {1, 2, 3}, pattern), std::nullopt);
  EXPECT_EQ(choose_base(nodes, {1, 2, 3}, {.period = 1, .backwards = true}), std::nullopt);
}

RetentionPlan plan_of(std::vector<std::uint64_t> kept, std::initializer_list<std::uint64_t> needed = {}) {
  RetentionPlan plan;
  for (const std::uint64_t step : needed) plan.needed.push_back({step, kept.front(), false});
  plan.kept = std::move(kept);
  return plan;
}

TEST(CodingPlan, CodesWhatABaseLeavesAgainstTheNextStandaloneOne) {
  const std::vector<StepNode> nodes = {sized(1, 900), sized(2, 700, {1}), sized(3, 900)};
  const RecodingPlan plan = plan_recoding(nodes, plan_of({2, 3}, {1}), {.period = 2}, 8);
  EXPECT_EQ(plan.dropped, std::set<std::uint64_t>{1});
  EXPECT_EQ(plan.onto, (std::map<std::uint64_t, std::uint64_t>{{2, 3}}));
}

TEST(CodingPlan, CodesNothingAgainstAnotherStepAtDepthZero) {
  const std::vector<StepNode> nodes = {sized(1, 900), sized(2, 700, {1}), sized(3, 900)};
  EXPECT_EQ(plan_recoding(nodes, plan_of({2, 3}, {1}), {.period = 2}, 0).onto.size(), 0);
  EXPECT_EQ(plan_recoding(nodes, plan_of({1, 2, 3}), {.period = 1, .backwards = true}, 0).onto.size(), 0);
}

TEST(CodingPlan, KeepsABaseThatCostsLittle) {
  const std::vector<StepNode> nodes = {sized(1, 900), sized(2, 5, {1}),
                                       sized(3, 5, {1})};  // an adapter of a frozen model
  EXPECT_TRUE(plan_recoding(nodes, plan_of({2, 3}, {1}), {.period = 16}, 8).is_empty());
}

}  // namespace
}  // namespace bitsnap::store
