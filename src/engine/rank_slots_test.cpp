// The slots of a rank: drawn sequences of calls against a plain model, and what each refusal says.
#include "engine/rank_slots.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace bitsnap::engine {
namespace {

constexpr std::uint64_t kSlotBytes = 2 * kSlotUnit;

Result<void> replace(RankSlots& slots, std::uint32_t count, std::uint64_t slot_bytes = kSlotBytes,
                     std::uint64_t more_bytes = 0) {
  const std::uint64_t size = kSlotUnit + count * slot_bytes + more_bytes;
  return slots.replace(*os::SharedMemory::create("slots-test", size), {count, slot_bytes});
}

struct ModelSlot {
  SlotUse use = SlotUse::free;
  std::uint64_t step = 0;
  bool is_complete = false;
};

class DrawnSlots {
 public:
  explicit DrawnSlots(std::uint32_t seed) : random_(seed) {}

  void run(int calls) {
    for (int i = 0; i < calls && !::testing::Test::HasFatalFailure(); ++i) {
      switch (draw(8)) {
        case 0: replace_arena(); break;
        case 1:
        case 2:
        case 3: stage(); break;
        case 4:
        case 5:
        case 6: end_encoding(); break;
        default: free_held(); break;
      }
      check();
    }
  }

 private:
  std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  [[nodiscard]] int find(SlotUse use) const {
    for (std::size_t i = 0; i < model_.size(); ++i) {
      if (model_[i].use == use) return static_cast<int>(i);
    }
    return -1;
  }

  void replace_arena() {
    const std::uint32_t count = 1 + draw(2);
    const bool is_free_to_go = find(SlotUse::staged) < 0;
    const auto replaced = replace(slots_, count);
    ASSERT_EQ(replaced.has_value(), is_free_to_go);
    if (is_free_to_go) {
      model_.assign(count, {});
    } else {
      EXPECT_EQ(replaced.error().kind(), ErrorKind::busy);
    }
  }

  void stage() {
    const std::uint32_t slot = draw(3);
    const std::uint64_t bytes = draw(4) == 0 ? kSlotBytes + 1 : kSlotBytes;
    const bool is_right = slot < model_.size() && model_[slot].use == SlotUse::free && bytes == kSlotBytes;
    ASSERT_EQ(slots_.stage({.slot = slot, .step = ++step_, .bytes = bytes}).has_value(), is_right);
    if (is_right) model_[slot] = {SlotUse::staged, step_};
  }

  // Holds or frees a staged slot, as the encoder thread does.
  void end_encoding() {
    const int staged = find(SlotUse::staged);
    if (staged < 0) return;
    free_held();
    const auto slot = static_cast<std::uint32_t>(staged);
    if (draw(3) == 0) {
      slots_.free(slot);
      model_[slot] = {};
      return;
    }
    ModelSlot& held = model_[slot];
    held.use = SlotUse::held;
    held.is_complete = draw(2) == 0;
    slots_.hold(slot, {.step = held.step,
                       .attempt = std::to_string(held.step),
                       .frame = held.is_complete ? std::make_shared<const SnapshotFrame>() : nullptr});
  }

  void free_held() {
    const int held = find(SlotUse::held);
    if (held < 0) return;
    slots_.free(static_cast<std::uint32_t>(held));
    model_[static_cast<std::size_t>(held)] = {};
  }

  void check() const {
    ASSERT_EQ(slots_.size(), model_.size());
    EXPECT_EQ(slots_.arena() == nullptr, model_.empty());
    std::size_t free = 0;
    const std::vector<HeldSlot> view = slots_.view();
    ASSERT_EQ(view.size(), model_.size());
    for (std::size_t i = 0; i < model_.size(); ++i) {
      if (model_[i].use == SlotUse::free) ++free;
      EXPECT_EQ(view[i].is_held, model_[i].use != SlotUse::free);
      EXPECT_EQ(view[i].step, model_[i].step);
    }
    EXPECT_EQ(slots_.free_count(), free);
    const int held = find(SlotUse::held);
    ASSERT_EQ(slots_.held().has_value(), held >= 0);
    const bool is_restorable = held >= 0 && model_[static_cast<std::size_t>(held)].is_complete;
    ASSERT_EQ(slots_.restorable().has_value(), is_restorable);
    if (held < 0) return;
    EXPECT_EQ(*slots_.held(), static_cast<std::uint32_t>(held));
    EXPECT_EQ(slots_.state(*slots_.held()).step, model_[static_cast<std::size_t>(held)].step);
    EXPECT_EQ(slots_.state(*slots_.held()).attempt, std::to_string(model_[static_cast<std::size_t>(held)].step));
  }

  std::mt19937 random_;
  store::BaseCache cache_;
  RankSlots slots_{cache_};
  std::vector<ModelSlot> model_;
  std::uint64_t step_ = 0;
};

TEST(RankSlots, AgreesWithAModelInDrawnSequences) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    DrawnSlots(seed).run(100);
  }
}

TEST(RankSlots, RefusesAnArenaOfAnotherSizeThanItsSlotsNeed) {
  store::BaseCache cache;
  RankSlots slots(cache);
  EXPECT_EQ(replace(slots, 2, kSlotBytes, kSlotUnit).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(replace(slots, 2, kSlotBytes + 1).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(replace(slots, 1, 0).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(slots.arena(), nullptr);
}

TEST(RankSlots, DividesTheArenaIntoItsSlots) {
  store::BaseCache cache;
  RankSlots slots(cache);
  ASSERT_TRUE(replace(slots, 2).has_value());
  const Arena& arena = *slots.arena();
  EXPECT_EQ(arena.slot(0).data(), arena.mapping.bytes().data() + kSlotUnit);
  EXPECT_EQ(arena.slot(1).data(), arena.slot(0).data() + kSlotBytes);
  EXPECT_EQ(arena.slot(1).data() + kSlotBytes, arena.mapping.bytes().data() + arena.mapping.size_bytes());
}

}  // namespace
}  // namespace bitsnap::engine
