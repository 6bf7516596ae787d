// What stays in memory and what goes, held against a naive model; and snapshots that are opened from there.
#include "engine/memory_tier.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "engine/engine_testing.hpp"

namespace bitsnap::engine {
namespace {

using Steps = std::vector<std::uint64_t>;

std::shared_ptr<const Blob> blob_of(std::size_t size) { return to_blob(record::Bytes(size)); }

// A snapshot of which nothing is opened.
MemorySnapshot made(std::uint64_t step, std::uint64_t id, std::size_t size, const std::vector<std::uint64_t>& needs,
                    bool persisted = false) {
  MemorySnapshot snapshot{step, {id, 0}, blob_of(size), {}, persisted};
  for (const std::uint64_t need : needs) snapshot.needs.push_back({need, 0});
  return snapshot;
}

// Of those that are whole.
std::vector<std::uint64_t> chain(const MemoryTier& tier, std::uint64_t step) {
  std::vector<std::uint64_t> ids;
  if (const auto held = tier.chain(step)) {
    for (const MemoryTier::Held& one : *held) ids.push_back(one.id.low);
  }
  return ids;
}

TEST(MemoryTier, KeepsTheNewestAndWhatTheyDependOn) {
  MemoryTier tier({.snapshots = 2});
  EXPECT_FALSE(tier.newest());
  EXPECT_TRUE(tier.put(made(1, 1, 10, {})));
  EXPECT_TRUE(tier.put(made(2, 2, 10, {1})));
  EXPECT_TRUE(tier.put(made(3, 3, 10, {2})));
  EXPECT_EQ(tier.steps(), (Steps{2, 3}));
  EXPECT_EQ(tier.bytes(), 30U);
  EXPECT_EQ(chain(tier, 3), (Steps{3, 2, 1}));
  EXPECT_EQ(chain(tier, 1), Steps{});  // held for the others only
  EXPECT_EQ(tier.newest()->step, 3U);
  EXPECT_EQ(tier.newest()->links, 2U);
  EXPECT_TRUE(tier.put(made(4, 4, 10, {})));
  EXPECT_TRUE(tier.put(made(5, 5, 10, {4})));
  EXPECT_EQ(tier.steps(), (Steps{4, 5}));
  EXPECT_EQ(tier.bytes(), 20U);
}

TEST(MemoryTier, CountsLinksFromWhatIsPersisted) {
  MemoryTier tier({.snapshots = 8});
  EXPECT_TRUE(tier.put(made(1, 1, 1, {})));
  EXPECT_EQ(tier.newest()->links, 0U);
  EXPECT_TRUE(tier.put(made(2, 2, 1, {1})));
  EXPECT_EQ(tier.newest()->links, 1U);
  EXPECT_TRUE(tier.put(made(3, 3, 1, {2, 1})));
  EXPECT_EQ(tier.newest()->links, 2U);
  tier.set_persisted({2, 0});
  EXPECT_EQ(tier.newest()->links, 1U);
  EXPECT_TRUE(tier.put(made(4, 4, 1, {3}, true)));
  EXPECT_EQ(tier.newest()->links, 0U);
  EXPECT_TRUE(tier.put(made(5, 5, 1, {4})));
  EXPECT_EQ(tier.newest()->links, 1U);
  tier.set_persisted({77, 0});
}

TEST(MemoryTier, GivesUpTheOldestWithWhatDependsOnThem) {
  MemoryTier tier({.snapshots = 8, .bytes = 40});
  tier.put(made(1, 1, 10, {}));
  tier.put(made(2, 2, 10, {1}));
  tier.put(made(3, 3, 10, {}));
  tier.put(made(4, 4, 10, {3}));
  EXPECT_EQ(tier.steps(), (Steps{1, 2, 3, 4}));
  tier.put(made(5, 5, 10, {4}));
  EXPECT_EQ(tier.steps(), (Steps{3, 4, 5}));
  tier.set_limits({.snapshots = 8, .bytes = 30});
  EXPECT_EQ(tier.steps(), (Steps{3, 4, 5}));
  // What the newest depends on goes after what it does not.
  EXPECT_TRUE(tier.put(made(6, 6, 10, {3})));
  EXPECT_EQ(tier.steps(), (Steps{3, 6}));
  EXPECT_EQ(chain(tier, 6), (Steps{6, 3}));
}

TEST(MemoryTier, KeepsTheNewestByItselfWhereItsChainDoesNotFit) {
  MemoryTier tier({.snapshots = 4, .bytes = 25});
  tier.put(made(1, 1, 10, {}));
  tier.put(made(2, 2, 10, {1}));
  EXPECT_FALSE(tier.put(made(3, 3, 10, {2})));
  EXPECT_EQ(tier.steps(), (Steps{3}));
  EXPECT_FALSE(tier.newest()->is_whole);
  EXPECT_EQ(chain(tier, 3), Steps{});
  EXPECT_EQ(tier.bytes(), 10U);
  const auto opened = tier.find({3, 0});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().kind(), ErrorKind::not_found);
  EXPECT_NE(opened.error().message().find(SnapshotId{2, 0}.to_hex()), std::string::npos);
  EXPECT_FALSE(tier.put(made(4, 4, 26, {})));
  EXPECT_EQ(tier.steps(), Steps{});
  EXPECT_EQ(tier.bytes(), 0U);
  EXPECT_FALSE(tier.newest());
  EXPECT_TRUE(tier.put(made(5, 5, 25, {})));
  EXPECT_EQ(tier.steps(), (Steps{5}));
}

TEST(MemoryTier, ForgetsTheFutureThatWasGivenUp) {
  MemoryTier tier({.snapshots = 8});
  tier.put(made(10, 1, 10, {}));
  tier.put(made(20, 2, 10, {1}));
  tier.put(made(30, 3, 10, {2}));
  EXPECT_TRUE(tier.put(made(20, 4, 10, {1})));
  EXPECT_EQ(tier.steps(), (Steps{10, 20}));
  EXPECT_EQ(chain(tier, 20), (Steps{4, 1}));
  EXPECT_EQ(tier.bytes(), 20U);
  // The same step again, coded against the first: that is no step any more, but is still there.
  EXPECT_TRUE(tier.put(made(20, 5, 10, {4})));
  EXPECT_EQ(tier.steps(), (Steps{10, 20}));
  EXPECT_EQ(chain(tier, 20), (Steps{5, 4, 1}));
}

TEST(MemoryTier, HoldsTheSameContentOnce) {
  MemoryTier tier({.snapshots = 8});
  tier.put(made(1, 7, 10, {}));
  // A file that says no more than that it is what it was: it refers to its own content, in the file before.
  EXPECT_TRUE(tier.put(made(2, 7, 3, {7})));
  EXPECT_EQ(tier.steps(), (Steps{1, 2}));
  EXPECT_EQ(tier.bytes(), 10U);
  EXPECT_EQ(tier.chain(2)->at(0).blob->size_bytes(), 10U);
  EXPECT_TRUE(tier.put(made(3, 8, 10, {7})));
  EXPECT_EQ(chain(tier, 3), (Steps{8, 7}));
  // Of one that is not whole there is no use.
  EXPECT_FALSE(tier.put(made(4, 9, 10, {100})));
  EXPECT_FALSE(tier.put(made(5, 9, 10, {9})));
  EXPECT_EQ(chain(tier, 5), Steps{});
  EXPECT_FALSE(tier.find({9, 0}));
  EXPECT_TRUE(tier.put(made(6, 9, 11, {7})));
  EXPECT_EQ(chain(tier, 6), (Steps{9, 7}));
}

// The rules, as plainly as they can be said.
struct Model {
  struct One {
    std::uint64_t id, size;
    std::vector<std::uint64_t> needs;
  };
  std::vector<One> held;  // in the order in which they came
  std::vector<std::pair<std::uint64_t, std::uint64_t>> steps;

  [[nodiscard]] const One* get(std::uint64_t id) const {
    const auto found = std::ranges::find(held, id, &One::id);
    return found == held.end() ? nullptr : &*found;
  }
  [[nodiscard]] std::vector<std::uint64_t> needs_of(std::uint64_t id) const {
    const One* const one = get(id);
    return one ? one->needs : std::vector<std::uint64_t>();
  }
  [[nodiscard]] bool needs(std::uint64_t id, std::uint64_t other) const {
    return id == other || std::ranges::any_of(needs_of(id), [&](auto need) { return needs(need, other); });
  }
  [[nodiscard]] bool is_whole(std::uint64_t id) const {
    return get(id) != nullptr && std::ranges::all_of(needs_of(id), [&](auto need) { return is_whole(need); });
  }
  void drop_unneeded() {
    const Model before = *this;
    std::erase_if(held, [&](const One& one) {
      return std::ranges::none_of(steps, [&](const auto& step) { return before.needs(step.second, one.id); });
    });
  }
  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const One& one : held) sum += one.size;
    return sum;
  }
  void put(std::uint64_t step, const One& one, std::size_t most, std::uint64_t budget) {
    std::erase_if(steps, [&](const auto& there) { return there.first >= step; });
    steps.emplace_back(step, one.id);
    if (!is_whole(one.id)) {
      std::erase_if(held, [&](const One& there) { return there.id == one.id; });
      held.push_back(one);
    }
    while (steps.size() > most) steps.erase(steps.begin());
    drop_unneeded();
    while (bytes() > budget) {
      const std::uint64_t newest = steps.back().second;
      const auto spare = std::ranges::find_if(held, [&](const One& there) { return !needs(newest, there.id); });
      const auto old = std::ranges::find_if(held, [&](const One& there) { return there.id != newest; });
      const std::uint64_t gone = spare != held.end() ? spare->id : old != held.end() ? old->id : newest;
      const Model before = *this;
      const auto goes = [&](std::uint64_t id) { return id == gone || (id != newest && before.needs(id, gone)); };
      std::erase_if(held, [&](const One& there) { return goes(there.id); });
      std::erase_if(steps, [&](const auto& there) { return goes(there.second); });
      drop_unneeded();
    }
  }
};

TEST(MemoryTier, HoldsWhatTheRulesSay) {
  unsigned fitted = 0;
  unsigned given_up = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const auto most = static_cast<std::uint32_t>(1 + random() % 5);
    const std::uint64_t budget = 20 + random() % 60;
    MemoryTier tier({.snapshots = most, .bytes = budget});
    Model model;
    std::uint64_t step = 0;
    std::uint64_t ids = 0;
    for (int i = 0; i < 40; ++i) {
      step = random() % 12 == 0 ? step / 2 : step + 1 + random() % 2;
      // Mostly new content, against something that came before, which may be gone.
      const std::uint64_t id = ids > 0 && random() % 8 == 0 ? 1 + random() % ids : ++ids;
      std::vector<std::uint64_t> needs;
      for (std::uint64_t k = random() % 3; k > 0 && id > 1; --k) {
        const std::uint64_t need = id - 1 - random() % std::min<std::uint64_t>(3, id - 1);
        if (std::ranges::find(needs, need) == needs.end()) needs.push_back(need);
      }
      const std::size_t size = 1 + random() % (random() % 10 == 0 ? 100 : 20);
      const bool is_whole = tier.put(made(step, id, size, needs));
      model.put(step, {id, size, needs}, most, budget);

      Steps steps;
      for (const auto& [at, content] : model.steps) steps.push_back(at);
      ASSERT_EQ(tier.steps(), steps) << seed << " " << i;
      ASSERT_EQ(tier.bytes(), model.bytes()) << seed << " " << i;
      ASSERT_LE(tier.bytes(), budget);
      ASSERT_EQ(is_whole, model.is_whole(id));
      ASSERT_EQ(tier.newest().has_value(), !steps.empty());
      (is_whole ? fitted : given_up)++;
      for (const auto& [at, content] : model.steps) {
        const Steps found = chain(tier, at);
        ASSERT_EQ(!found.empty(), model.is_whole(content));
        if (found.empty()) continue;
        ASSERT_EQ(found.front(), content);
        // All that is needed, each once, and before what it needs itself.
        for (std::size_t k = 0; k < found.size(); ++k) {
          for (const std::uint64_t need : model.needs_of(found[k])) {
            ASSERT_EQ(std::count(found.begin() + static_cast<std::ptrdiff_t>(k) + 1, found.end(), need), 1);
          }
          ASSERT_TRUE(model.needs(content, found[k]));
        }
      }
    }
  }
  EXPECT_GT(fitted, 1000U);
  EXPECT_GT(given_up, 1000U);
}

TEST(MemoryTier, OpensASnapshotWithAllThatItDependsOnWhateverGoesAfterwards) {
  std::shared_ptr<const Snapshot> opened;
  Training training;
  record::Chain files;
  {
    MemoryTier tier({.snapshots = 1});
    for (std::uint64_t step = 1; step <= 3; ++step) {
      training.step();
      const Snapshot& saved = files.save(training.state());
      EXPECT_TRUE(tier.put(from_file(step, saved, files.file(step - 1))));
    }
    EXPECT_EQ(tier.chain(3)->size(), 3U);
    const auto found = tier.open(files.last()->id());
    ASSERT_TRUE(found) << found.error().message();
    // Opened once, as long as somebody has it.
    EXPECT_EQ(tier.find(files.last()->id()).value(), *found);
    opened = *found;
    EXPECT_EQ(opened->name(), "0000000003-in-memory.bsnap");
    EXPECT_EQ(tier.find({1, 2}).error().kind(), ErrorKind::not_found);
    tier.set_limits({.snapshots = 0});
    EXPECT_EQ(tier.bytes(), 0U);
    EXPECT_FALSE(tier.open(opened->id()));
  }
  EXPECT_EQ(training.difference(*opened), "");
}

TEST(MemoryTier, FindsABlobThatHoldsSomethingElse) {
  Training training;
  record::Chain files;
  files.save(training.state());
  MemoryTier tier({.snapshots = 1});
  tier.put({1, {1, 1}, to_blob(files.file(0)), {}, false});
  EXPECT_EQ(tier.find({1, 1}).error().kind(), ErrorKind::corrupt);
}

}  // namespace
}  // namespace bitsnap::engine
