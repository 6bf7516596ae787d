// The saves of a trainer and their slots: what agents report, in drawn sequences, and what is left when they die.
#include "engine/trainer_saves.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace bitsnap::engine {
namespace {

TrainerSave save_of(TrainerSaves& saves, std::uint64_t step, bool persist = true) {
  TrainerSave save;
  save.state.ticket = saves.next_ticket();
  save.state.step = step;
  save.state.persist = persist;
  save.slot = saves.fill_slot();
  return save;
}

std::uint64_t add(TrainerSaves& saves, std::uint64_t step, bool is_new = false) {
  TrainerSave save = save_of(saves, step);
  save.is_new = is_new;
  save.was_told = true;
  saves.add(save);
  return save.state.ticket;
}

ProgressEvent event_of(std::uint64_t ticket, std::optional<Stage> stage, std::optional<std::uint32_t> free = {}) {
  ProgressEvent event;
  event.ticket = ticket;
  event.stage = stage;
  event.free = free;
  if (stage == Stage::failed) event.error = Error(ErrorKind::io, "drawn");
  return event;
}

// A save of the model: where it is, and whether it is over.
struct ModelSave {
  std::optional<std::uint32_t> slot;
  bool persist = true;
  SaveStage stage = SaveStage::staged;
  bool is_lost = false;

  [[nodiscard]] bool is_over() const {
    return stage == SaveStage::failed || stage == SaveStage::persisted || (stage == SaveStage::memory && !persist);
  }
};

class DrawnSaves {
 public:
  explicit DrawnSaves(std::uint32_t seed) : random_(seed) { saves_.begin_arena(2); }

  void run(int calls) {
    for (int i = 0; i < calls && !::testing::Test::HasFatalFailure(); ++i) {
      switch (draw(8)) {
        case 0:
        case 1: save(); break;
        case 2: free_slot(); break;
        case 3:
        case 4:
        case 5: progress(); break;
        case 6: lose(); break;
        default: settle(); break;
      }
      check();
    }
  }

 private:
  std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  void save() {
    const bool persist = draw(2) == 0;
    const TrainerSave save = save_of(saves_, ++step_, persist);
    ASSERT_EQ(save.slot.has_value(), used_.size() < 2);
    if (!save.slot) return;
    ASSERT_FALSE(used_.contains(*save.slot));
    saves_.add(save);
    used_[*save.slot] = save.state.ticket;
    model_[save.state.ticket] = {save.slot, persist};
  }

  void free_slot() {
    const std::uint32_t slot = draw(2);
    saves_.apply(event_of(0, std::nullopt, slot));
    if (!used_.contains(slot)) return;
    model_.at(used_.at(slot)).slot.reset();
    used_.erase(slot);
  }

  void progress() {
    if (model_.empty()) return;
    const auto each = std::next(model_.begin(), draw(static_cast<std::uint32_t>(model_.size())));
    const auto stage = static_cast<Stage>(draw(3));
    saves_.apply(event_of(each->first, stage));
    if (each->second.is_over()) return;
    each->second.stage = stage == Stage::memory      ? SaveStage::memory
                         : stage == Stage::persisted ? SaveStage::persisted
                                                     : SaveStage::failed;
    failures_ += stage == Stage::failed ? 1 : 0;
  }

  // The agent dies: what is in a slot and not over stays there, all else has left the slots.
  void lose() {
    saves_.lose(Error(ErrorKind::io, "died"));
    for (auto& [ticket, save] : model_) {
      if (!save.is_over() && !save.slot) save.is_lost = true;
      if (!save.is_over() || !save.slot) continue;
      used_.erase(*save.slot);
      save.slot.reset();
    }
    std::vector<std::uint64_t> again;
    for (const auto& [ticket, save] : model_) {
      if (!save.is_over() && save.slot) again.push_back(ticket);
    }
    const std::vector<Staged> staged = saves_.hand_over_again();
    ASSERT_EQ(staged.size(), again.size());
    for (std::size_t i = 0; i < again.size(); ++i) {
      EXPECT_EQ(staged[i].ticket, again[i]);
      EXPECT_EQ(staged[i].slot, model_.at(again[i]).slot);
      // A save that kills agents again and again would fail in time, which the model does not count.
      saves_.find(again[i])->agents_died = 0;
    }
  }

  void settle() {
    saves_.settle_lost({});
    for (auto& [ticket, save] : model_) {
      if (!save.is_lost || save.is_over()) continue;
      save.stage = SaveStage::failed;
      ++failures_;
    }
  }

  void check() {
    std::size_t unfinished = 0;
    bool has_lost = false;
    bool needs_arena = false;
    bool is_encoding = false;
    for (const auto& [ticket, save] : model_) {
      const TrainerSave* const found = saves_.find(ticket);
      ASSERT_NE(found, nullptr);
      EXPECT_EQ(found->state.stage, save.stage);
      EXPECT_EQ(found->slot, save.slot);
      if (!save.is_over()) ++unfinished;
      has_lost |= save.is_lost && !save.is_over();
      needs_arena |= save.slot && !save.is_over();
      is_encoding |= save.slot && save.stage == SaveStage::staged;
    }
    EXPECT_EQ(saves_.unfinished(), unfinished);
    EXPECT_EQ(saves_.has_lost(), has_lost);
    EXPECT_EQ(saves_.needs_arena(), needs_arena);
    EXPECT_EQ(saves_.is_encoding(), is_encoding);
    EXPECT_EQ(saves_.free_slots().size(), 2 - used_.size());
    EXPECT_EQ(saves_.has_free_slot(), used_.size() < 2);
    EXPECT_EQ(saves_.take_failures().size(), std::exchange(failures_, 0));
  }

  std::mt19937 random_;
  TrainerSaves saves_{100};
  std::map<std::uint64_t, ModelSave> model_;
  std::map<std::uint32_t, std::uint64_t> used_;  // ticket by slot
  std::size_t failures_ = 0;
  std::uint64_t step_ = 0;
};

TEST(TrainerSaves, AgreesWithAModelInDrawnSequences) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    DrawnSaves(seed).run(80);
  }
}

TEST(TrainerSaves, TakesALostSaveForPersistedOnlyIfTheStepCanBeFromNoOther) {
  TrainerSaves saves(0);
  saves.begin_arena(2);
  const std::uint64_t is_new = add(saves, 5, true);
  const std::uint64_t is_old = add(saves, 5);
  saves.apply(event_of(0, std::nullopt, 0));
  saves.apply(event_of(0, std::nullopt, 1));
  saves.lose(Error(ErrorKind::io, "died"));
  const std::vector<std::uint64_t> steps = {5};
  saves.settle_lost(steps);
  EXPECT_EQ(saves.find(is_new)->state.stage, SaveStage::persisted);
  EXPECT_EQ(saves.find(is_old)->state.stage, SaveStage::failed);
}

TEST(TrainerSaves, GivesUpASaveThatManyAgentsHaveDiedOf) {
  TrainerSaves saves(0);
  saves.begin_arena(1);
  const std::uint64_t ticket = add(saves, 1);
  for (int i = 1; i < TrainerSaves::kMostAgents; ++i) EXPECT_EQ(saves.hand_over_again().size(), 1U);
  EXPECT_TRUE(saves.hand_over_again().empty());
  EXPECT_EQ(saves.find(ticket)->state.stage, SaveStage::failed);
  EXPECT_TRUE(saves.has_free_slot());
}

TEST(TrainerSaves, AdoptsAnArenaWithoutTheSlotsThatWereFreedMeanwhile) {
  TrainerSaves saves(0);
  saves.begin_link();
  saves.apply(event_of(0, std::nullopt, 1));
  const std::vector<HeldSlot> held = {{.is_held = true, .step = 1}, {.is_held = true, .step = 2}};
  saves.adopt_arena(held);
  EXPECT_EQ(saves.free_slots(), std::vector<std::uint32_t>({1}));
}

TEST(TrainerSaves, ForgetsTheOldestSavesThatAreOverAndInNoSlot) {
  TrainerSaves saves(0);
  saves.begin_arena(1);
  const std::uint64_t in_slot = add(saves, 0);
  saves.apply(event_of(in_slot, Stage::persisted));
  for (std::uint64_t i = 1; i < TrainerSaves::kMaxRemembered + 10; ++i) {
    saves.apply(event_of(add(saves, i), Stage::persisted));
  }
  EXPECT_NE(saves.find(in_slot), nullptr);
  EXPECT_EQ(saves.find(in_slot + 1), nullptr);
  EXPECT_NE(saves.find(in_slot + 100), nullptr);
}

}  // namespace
}  // namespace bitsnap::engine
