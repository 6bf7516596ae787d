// Random histories of a store, compared with a model of what must be restorable. A failure names its seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "os/atomic_file.hpp"
#include "os/fake_disk_testing.hpp"
#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "store/crash_trial_testing.hpp"
#include "store/store_impl.hpp"
#include "store/store_laws_testing.hpp"

namespace bitsnap::store {
namespace {

using os::FakeFileSystem;
using os::FaultyFileSystem;

// One run and everything that happens to it.
class History {
 public:
  explicit History(std::uint64_t seed) : random_(seed) { options_.access = StoreAccess::write; }

  // Returns an empty string, or what is wrong.
  std::string live(int operations) {
    for (int i = 0; i < operations; ++i) {
      std::string wrong = next();
      if (!wrong.empty()) return "operation " + std::to_string(i) + ", " + what_ + ": " + wrong;
    }
    close();
    what_ = "the end";
    return broken_law(*files_, journal_.allowed(), options_);
  }
  [[nodiscard]] std::size_t repairs() const noexcept { return repairs_; }
  [[nodiscard]] std::size_t lost() const noexcept { return lost_; }

 private:
  std::string next() {
    if (store_ == nullptr) return open();
    const std::uint64_t choice = random_.below(100);
    if (choice < 8) return die();
    if (choice < 12) {
      what_ = "close";
      close();
      return "";
    }
    if (choice < 15) {
      close();
      return be_damaged_and_repaired();
    }
    // A failure may interrupt the following call.
    const bool is_cut_short = random_.chance(1);
    if (is_cut_short) {
      faulty_->reset();
      faulty_->fail_at(random_.below(60), {.lasting = random_.chance(6), .half_done = random_.chance(4)});
    }
    const Result<void> done = choice < 65   ? save()
                              : choice < 84 ? prune()
                              : choice < 92 ? remove_some()
                                            : roll_back_somewhere();
    if (!done && faulty_->failures() == 0) return done.error().message();
    if (faulty_->failures() > 0) return die();
    faulty_->reset();
    return look();
  }

  std::string open() {
    options_.settings.max_depth = static_cast<std::uint32_t>(random_.below(5));
    options_.settings.base = random_.chance(2) ? BaseRule::keyframe : BaseRule::previous;
    options_.keep_base_bytes = random_.chance(4) ? 1 << 20 : 0;
    what_ = "open";
    faulty_ = std::make_unique<FaultyFileSystem>(*files_);
    auto store = open_store(*faulty_, kTestRun, options_);
    if (!store) return store.error().message();
    store_ = std::move(*store);
    return look();
  }

  void close() {
    store_.reset();
    faulty_.reset();
  }

  // The process dies, or the machine, which loses what was not synced.
  std::string die() {
    what_ += ", then death";
    close();
    const std::uint64_t way = random_.below(4);
    if (way == 1) files_->crash();
    if (way > 1) files_->crash_at_random(random_.below(1'000'000));
    TestRun found;
    std::string wrong = check_shown(*files_, journal_.allowed(), &found);
    if (!wrong.empty()) return wrong;
    for (const auto& [step, content] : found) saved_[step] = content;
    // After a machine crash everything on disk is safe. After a process death, opening the store makes it safe, except
    // that steps hidden by a prune may still come back.
    if (way == 0) {
      journal_.open(found, [&](const TestRun& run) { return run == found; }, [](const TestRun&) { return true; });
    } else {
      journal_ = Journal(found);
    }
    return "";
  }

  Result<void> save() {
    const TestRun& run = journal_.run();
    std::uint64_t step = (run.empty() ? 0 : run.rbegin()->first) + 1 + random_.below(3);
    // Retired steps above the newest exist only if all checkpoints were lost. Their numbers are taken.
    while (files_->stat(RunLayout(kTestRun).retired(step))->exists) ++step;
    what_ = "save " + std::to_string(step);
    // Mostly one training. Some states are the same at all steps, or have one more tensor.
    const std::uint64_t seed = random_.chance(5) ? 0 : random_.below(40);
    CommitOptions commit;
    if (!run.empty() && random_.chance(1)) {
      commit.replace = true;
      step = run.rbegin()->first;
      what_ = "replace " + std::to_string(step);
      attempts_[step].insert({run.at(step), TestStep{seed, 1}});
    } else {
      attempts_.erase(step);
    }
    saved_[step] = {seed, 1};
    return save_step(*store_, journal_, step, seed, Destination::disk, commit);
  }

  Result<void> prune() {
    Retention retention;
    if (random_.chance(5)) retention.keep_last = 1 + random_.below(4);
    if (random_.chance(3)) retention.keep_every = 2 + random_.below(5);
    for (const auto& [step, content] : journal_.run()) {
      if (random_.chance(1)) retention.keep.push_back(step);
    }
    const auto reencode = static_cast<Reencode>(random_.below(3));
    what_ = "prune, reencode " + std::to_string(static_cast<int>(reencode));
    return prune_steps(*store_, journal_, retention, reencode);
  }

  Result<void> remove_some() {
    std::vector<std::uint64_t> steps;
    for (const auto& [step, content] : journal_.run()) {
      if (random_.chance(2)) steps.push_back(step);
    }
    if (steps.size() == journal_.run().size()) return {};
    what_ = fmt::format("remove {}", steps);
    return remove_named(*store_, journal_, steps, static_cast<Reencode>(random_.below(3)));
  }

  Result<void> roll_back_somewhere() {
    const TestRun& run = journal_.run();
    if (run.empty()) return {};
    const auto target =
        std::next(run.begin(),
                  static_cast<std::ptrdiff_t>(run.size() - 1 - random_.below(std::min<std::uint64_t>(run.size(), 4))));
    what_ = "roll back to " + std::to_string(target->first);
    return roll_back(*store_, journal_, target->first);
  }

  // Flips a byte of some file or removes it. A repair must save every step that does not depend on that file, keep as
  // damaged no other, and rebuild records.
  std::string be_damaged_and_repaired() {
    const RunLayout layout(kTestRun);
    std::vector<std::string> files;
    for (std::string& file : files_->all_files()) {
      const bool is_in_checkpoint =
          file.starts_with(layout.checkpoints() + "/") && !os::AtomicFile::is_temporary_name(os::file_name(file));
      if (is_in_checkpoint || file == layout.run_record()) files.push_back(std::move(file));
    }
    if (files.empty()) return "";
    const std::string file = files[random_.below(files.size())];
    what_ = "damage of " + file;
    std::vector<std::byte> bytes = os::read_file(*files_, file, 1 << 24).value();
    bytes[random_.below(bytes.size())] ^= std::byte{1};
    const bool is_removed = random_.chance(3);
    // A checkpoint that has lost its record and that nobody needs looks as if it had never been committed.
    std::set<std::uint64_t> endangered;
    if (const auto step = step_from_name(os::file_name(os::parent_directory(file)))) {
      if (file.ends_with(".bsnap")) endangered = dependants(*step);
      if (is_removed && file == layout.commit(*step)) endangered = {*step};
    }
    if (is_removed) {
      what_ += ", removed";
      EXPECT_TRUE(files_->remove(file));
      EXPECT_TRUE(files_->sync_directory(os::parent_directory(file)));
    } else {
      files_->plant(file, bytes);
    }
    if (random_.chance(4)) open_and_prune_nothing();

    const auto repair = [](os::FileSystem& disk) { return repair_store(disk, kTestRun, {false, {1, nullptr}}); };
    if (random_.chance(2)) {
      FaultyFileSystem faulty(*files_);
      faulty.fail_at(random_.below(200), {.lasting = random_.chance(6), .half_done = random_.chance(4)});
      static_cast<void>(repair(faulty));
      const std::uint64_t way = random_.below(3);
      if (way == 1) files_->crash();
      if (way == 2) files_->crash_at_random(random_.below(1'000'000));
    }
    ++repairs_;
    const auto repaired = repair(*files_);
    if (!repaired) return repaired.error().message();
    const auto steps = shown_steps(*files_);
    if (!steps) return steps.error().message();
    // A crash may have brought back steps that a prune had hidden.
    for (const TestRun& before : journal_.allowed()) {
      TestRun after;
      std::ranges::copy_if(before, std::inserter(after, after.end()), [&](const auto& entry) {
        return !endangered.contains(entry.first) || std::ranges::binary_search(*steps, entry.first);
      });
      const std::size_t lost = before.size() - after.size();
      // A step whose removal was interrupted looks like a step that has lost its record, and comes back.
      for (const std::uint64_t step : *steps) after.try_emplace(step, saved_[step]);
      if (!std::ranges::equal(after, *steps, {}, [](const auto& entry) { return entry.first; })) continue;
      lost_ += lost;
      for (const RepairReport::Damaged& kept : repaired->damaged) {
        if (!endangered.contains(kept.step)) return fmt::format("step {} is kept as damaged", kept.step);
        after[kept.step].damaged = damaged_in(kept.step);
      }
      // If a replacement was interrupted and the record is lost, nobody knows which of the files were meant.
      std::vector<TestRun> possible = {after};
      for (const auto& [step, contents] : attempts_) {
        for (const TestStep& content : contents) {
          if (after.contains(step)) (possible.emplace_back(after))[step] = content;
        }
      }
      TestRun found;
      std::string wrong = check_shown(*files_, possible, &found);
      if (wrong.empty()) journal_ = Journal(found);
      return wrong.empty() && !repaired->damaged.empty() ? outlive_damage(repaired->damaged) : wrong;
    }
    std::vector<std::vector<std::uint64_t>> allowed;
    for (const TestRun& before : journal_.allowed()) {
      for (auto& one = allowed.emplace_back(); const auto& [step, content] : before) one.push_back(step);
    }
    return fmt::format("shows {}, not one of {} without some of {}", *steps, allowed, endangered);
  }

  // The tensors of a step that cannot be read, as TestStep::damaged.
  std::set<std::pair<std::uint32_t, std::string>> damaged_in(std::uint64_t step) {
    std::set<std::pair<std::uint32_t, std::string>> found;
    const auto store = open_store(*files_, kTestRun, {}).value();
    const auto snapshot = store->snapshot(step, 0, true).value();
    const std::vector<DamagedTensor> damaged = snapshot->damaged_tensors().value();
    for (const DamagedTensor& each : damaged) found.emplace(0, snapshot->tensors()[each.tensor].name);
    return found;
  }

  // The training goes on beside what is kept as damaged, and then removes it.
  std::string outlive_damage(const std::vector<RepairReport::Damaged>& kept) {
    what_ += ", then a save, and the damaged checkpoints are removed";
    const auto store = open_store(*files_, kTestRun, options_);
    if (!store) return store.error().message();
    std::uint64_t step = journal_.run().rbegin()->first + 1;
    while (files_->stat(RunLayout(kTestRun).retired(step))->exists) ++step;
    attempts_.erase(step);
    saved_[step] = {0, 1};
    if (const auto saved = save_step(**store, journal_, step, 0); !saved) return saved.error().message();
    if (std::string wrong = check_shown(*files_, journal_.allowed()); !wrong.empty()) return wrong;
    std::vector<std::uint64_t> removed;
    for (const RepairReport::Damaged& each : kept) removed.push_back(each.step);
    const auto reencode = static_cast<Reencode>(random_.below(3));
    if (const auto done = remove_named(**store, journal_, removed, reencode); !done) return done.error().message();
    return check_shown(*files_, journal_.allowed());
  }

  // Opens and prunes the store without knowing of the damage.
  void open_and_prune_nothing() {
    const auto store = open_store(*files_, kTestRun, options_);
    Retention all;
    all.keep_last = 1'000'000;
    if (store) static_cast<void>((*store)->prune(all));
  }

  // The step, and all steps that may need it according to their records.
  std::set<std::uint64_t> dependants(std::uint64_t step) {
    std::set<std::uint64_t> found = {step};
    const std::vector<std::string> names = files_->list_directory(RunLayout(kTestRun).checkpoints()).value();
    for (const std::string& name : names) {
      const std::uint64_t later = step_from_name(name).value();
      auto record = read_commit_record(*files_, RunLayout(kTestRun), later);
      if (!record) record = read_commit_record(*files_, RunLayout(kTestRun), later, true);
      if (!record) continue;
      for (const ShardFile& shard : record->shards) {
        for (const StepReference& reference : shard.references) {
          if (found.contains(reference.step)) found.insert(later);
        }
      }
    }
    return found;
  }

  // Compares the shown steps, and the content of one of them bit for bit.
  std::string look() {
    const auto steps = store_->steps();
    if (!steps) return steps.error().message();
    const TestRun& run = journal_.run();
    if (!std::ranges::equal(run, *steps, {}, [](const auto& entry) { return entry.first; })) return "other steps";
    if (steps->empty()) return "";
    const std::uint64_t step = (*steps)[random_.below(steps->size())];
    return check_step(*store_, step, test_state(step, run.at(step).shard_seed(0)));
  }

  os::fake::SeededRandom random_;
  std::unique_ptr<FakeFileSystem> files_ = std::make_unique<FakeFileSystem>();
  std::unique_ptr<FaultyFileSystem> faulty_;
  std::unique_ptr<Store> store_;
  StoreOptions options_;
  Journal journal_;
  TestRun saved_;                                         // every step that was ever saved, with its last content
  std::map<std::uint64_t, std::set<TestStep>> attempts_;  // the contents of steps that were replaced
  std::string what_;
  std::size_t repairs_ = 0;
  std::size_t lost_ = 0;  // checkpoints lost by damage
};

class StoreModel : public testing::TestWithParam<std::uint64_t> {};

TEST_P(StoreModel, RandomCallsMatchTheModel) {
  const std::uint64_t histories = takes_samples() ? 4 : 100;
  constexpr int kOperations = 60;
  std::size_t repairs = 0;
  std::size_t lost = 0;
  for (std::uint64_t i = 0; i < histories; ++i) {
    const std::uint64_t seed = GetParam() + i;
    History history(seed);
    ASSERT_EQ(history.live(kOperations), "") << "seed " << seed;
    repairs += history.repairs();
    lost += history.lost();
  }
  std::cout << histories * kOperations << " operations, " << repairs << " repairs, in which " << lost
            << " checkpoints were beyond repair\n";
}

INSTANTIATE_TEST_SUITE_P(FromSeed, StoreModel, testing::Values(1, 101, 201, 301), testing::PrintToStringParamName());

}  // namespace
}  // namespace bitsnap::store
