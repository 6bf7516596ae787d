// Readers beside a writer that rolls a store back and saves the same steps again. The change happens before each file
// operation of each reading call. A reader sees the store before or after it, or finds no such step, but no damage.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "store/run_layout.hpp"
#include "store/store_calls_testing.hpp"
#include "store/store_laws_testing.hpp"

namespace bitsnap::store {
namespace {

constexpr std::uint64_t kLast = 3;

// Steps 1 to kLast, each coded against the one before. All but the first are saved again, with another content.
class ChangingRun {
 public:
  ChangingRun() { save_from(1); }

  void roll_back() { ASSERT_TRUE(open(*files_)->rollback(1)); }
  void save_again() {
    roll_back();
    ++seed_;
    save_from(2);
  }
  // As a writer that is at work on step `kLast`, whose file has half of its bytes.
  void save_again_in_part() {
    const RunLayout layout(kTestRun);
    const std::string path = layout.step_file(kLast, shard_file_name(0, 1, ""));
    const std::vector<std::byte> bytes = os::read_file(*files_, path, 1 << 20).value();
    roll_back();
    ASSERT_TRUE(files_->create_directory(layout.step_directory(kLast)));
    auto file = files_->create(path).value();
    ASSERT_TRUE(file->append(ConstByteSpan(bytes).first(bytes.size() / 2)));
  }
  void prune_to_the_last() {
    PruneOptions options{.reencode = Reencode::always, .run = kOneThread};
    ASSERT_TRUE(open(*files_)->prune({.keep_last = 1}, options));
  }

  [[nodiscard]] os::FakeFileSystem& files() { return *files_; }

  // Whether the snapshot is the content of the step, before or after a change.
  [[nodiscard]] bool holds(const Snapshot& snapshot, std::uint64_t step) const {
    for (std::uint64_t seed = 0; seed <= (step == 1 ? 0 : seed_); ++seed) {
      if (difference(snapshot, TestState(step, seed)).empty()) return true;
    }
    return false;
  }

 private:
  void save_from(std::uint64_t first) {
    const std::unique_ptr<Store> store = open(*files_);
    for (std::uint64_t step = first; step <= kLast; ++step) {
      ASSERT_TRUE(store->save(step, TestState(step, seed_).state(), kOneThread));
    }
  }

  std::unique_ptr<os::FakeFileSystem> files_ = std::make_unique<os::FakeFileSystem>();
  std::uint64_t seed_ = 0;
};

// A reading call returns an empty string, or what is wrong with its result.
using ReadingCall = std::function<std::string(const Store&, const ChangingRun&)>;

std::string read_step(const Store& store, const ChangingRun& run) {
  const auto snapshot = store.snapshot(kLast);
  if (!snapshot) return snapshot.error().kind() == ErrorKind::not_found ? "" : snapshot.error().message();
  return run.holds(**snapshot, kLast) ? "" : "other content";
}

// Step 1 always exists, so a newest checkpoint does, too.
std::string read_newest(const Store& store, const ChangingRun& run) {
  const auto snapshot = store.snapshot();
  if (!snapshot) return snapshot.error().message();
  const bool is_known = run.holds(**snapshot, 1) || run.holds(**snapshot, 2) || run.holds(**snapshot, 3);
  return is_known ? "" : "other content";
}

std::string look_up(const Store& store, const ChangingRun&) {
  const auto info = store.checkpoint(kLast);
  if (!info) return info.error().kind() == ErrorKind::not_found ? "" : info.error().message();
  return info->damage ? info->damage->message() : "";
}

std::string list_all(const Store& store, const ChangingRun&) {
  const auto list = store.checkpoints();
  if (!list) return list.error().message();
  for (const Checkpoint& info : *list) {
    if (info.damage) return info.damage->message();
  }
  return list->empty() ? "no checkpoint" : "";
}

std::string verify_with(const Store& store, const StoreVerifyOptions& options) {
  const auto verified = store.verify(options);
  if (!verified) return verified.error().kind() == ErrorKind::not_found ? "" : verified.error().message();
  return verified->damages.empty() ? "" : verified->damages.front().error.message();
}

const std::vector<std::pair<std::string, ReadingCall>>& reading_calls() {
  static const std::vector<std::pair<std::string, ReadingCall>> calls = {
      {"snapshot(step)", read_step},
      {"snapshot()", read_newest},
      {"info()", look_up},
      {"list()", list_all},
      {"verify()", [](const Store& store, const ChangingRun&) { return verify_with(store, {.run = kOneThread}); }},
      {"verify() without decoding",
       [](const Store& store, const ChangingRun&) { return verify_with(store, {.decode = false, .run = kOneThread}); }},
      {"verify() of one step",
       [](const Store& store, const ChangingRun&) {
         return verify_with(store, {.steps = {kLast}, .run = kOneThread});
       }},
  };
  return calls;
}

using RunChange = void (ChangingRun::*)();

// Makes the change before operation `at` of the call. Returns whether the call has that many.
bool change_at(std::uint64_t at, const ReadingCall& call, RunChange change, const std::string& name) {
  ChangingRun run;
  os::FaultyFileSystem files(run.files());
  std::optional<std::uint64_t> before;  // number of operations until the next change
  files.watch([&](const auto&) {
    if (before && (*before)-- == 0) {
      before.reset();
      (run.*change)();
    }
  });
  const std::unique_ptr<Store> store = open(files, StoreOptions{});
  if (store == nullptr) return false;
  before = at;
  EXPECT_EQ(call(*store, run), "") << name << ", changed before operation " << at;
  return !before;
}

void change_at_each_operation(RunChange change) {
  for (const auto& [name, call] : reading_calls()) {
    std::uint64_t at = 0;
    while (change_at(at, call, change, name)) ++at;
    EXPECT_GT(at, 1U) << name;
  }
}

TEST(StoreChanges, AStepThatIsRolledBackIsNotDamaged) { change_at_each_operation(&ChangingRun::roll_back); }
TEST(StoreChanges, AStepThatIsSavedAgainIsNotDamaged) { change_at_each_operation(&ChangingRun::save_again); }
TEST(StoreChanges, AStepThatIsBeingSavedAgainIsNotDamaged) {
  change_at_each_operation(&ChangingRun::save_again_in_part);
}
TEST(StoreChanges, AStepThatIsRewrittenIsNotDamaged) { change_at_each_operation(&ChangingRun::prune_to_the_last); }

// Not even then a reader reports damage, or reads for ever.
TEST(StoreChanges, AStepThatKeepsChangingIsBusy) {
  ChangingRun run;
  os::FaultyFileSystem files(run.files());
  bool is_changing = false;
  files.watch([&](const os::FaultyFileSystem::Step& step) {
    const bool opens_file = step.operation == os::FileOperation::open && step.path.ends_with(".bsnap");
    if (is_changing && opens_file) run.save_again();
  });
  const std::unique_ptr<Store> store = open(files, StoreOptions{});
  is_changing = true;
  const auto snapshot = store->snapshot(kLast);
  ASSERT_FALSE(snapshot);
  EXPECT_EQ(snapshot.error().kind(), ErrorKind::busy) << snapshot.error().message();
  EXPECT_NE(snapshot.error().message().find("/run: step 3 changed 16 times"), std::string::npos);
  const auto verified = store->verify({.run = kOneThread});
  ASSERT_FALSE(verified);
  EXPECT_EQ(verified.error().kind(), ErrorKind::busy) << verified.error().message();
  is_changing = false;
  EXPECT_EQ(read_step(*store, run), "");
}

// What stays the same is damaged.
TEST(StoreChanges, AFileThatChangesWithoutItsRecordIsDamaged) {
  ChangingRun run;
  const std::string path = RunLayout(kTestRun).step_file(kLast, shard_file_name(0, 1, ""));
  const std::vector<std::byte> bytes = os::read_file(run.files(), path, 1 << 20).value();
  const std::unique_ptr<Store> store = open(run.files(), StoreOptions{});
  run.files().plant(path, ConstByteSpan(bytes).first(bytes.size() / 2));
  EXPECT_EQ(store->snapshot(kLast).error().kind(), ErrorKind::truncated);
  EXPECT_EQ(store->verify()->damages.size(), 1U);
  ASSERT_TRUE(run.files().remove(path));
  EXPECT_EQ(store->snapshot(kLast).error().kind(), ErrorKind::corrupt);
  EXPECT_EQ(store->verify()->damages.size(), 1U);
}

}  // namespace
}  // namespace bitsnap::store
