// MirrorTest: a run on a disk in memory, and its copy in an object store in memory, for tests of mirrors.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "objects/object_file_system.hpp"
#include "objects/object_store_fake.hpp"
#include "os/file_system_fake.hpp"
#include "store/mirror_order.hpp"
#include "store/mirror_records.hpp"
#include "store/open_mirror.hpp"
#include "store/run_testing.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::store {

inline constexpr const char* kLocalRun = "/run";
inline constexpr const char* kCopy = "s3://bucket/run";
inline const RunOptions kRunOnOne{1, nullptr};

// A process that mirrors; the one before it has ended, and its lease has run out.
struct Mirrorer {
  explicit Mirrorer(const objects::FakeObjectStore& bucket)
      : objects(std::make_shared<objects::FakeObjectStore>(bucket)),
        files(std::make_shared<objects::ObjectFileSystem>("s3://bucket", objects,
                                                          objects::LeaseTimes{10'000, 30'000, 0, 0})) {}

  [[nodiscard]] Home home() const { return {files.get(), kCopy}; }
  [[nodiscard]] Result<MirrorReport> mirror(os::FileSystem& local, MirrorOptions options = {}) const {
    auto mirror = open_mirror({&local, kLocalRun}, home(), std::move(options));
    if (!mirror) return tl::unexpected(mirror.error());
    return mirror->update();
  }
  [[nodiscard]] Result<std::unique_ptr<Store>> read() const {
    return open_store(*files, kCopy, {.access = StoreAccess::read});
  }

  std::shared_ptr<objects::FakeObjectStore> objects;
  std::shared_ptr<objects::ObjectFileSystem> files;
};

class MirrorTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> writer(std::uint64_t keep_last = 0) {
    StoreOptions options;
    options.access = StoreAccess::write;
    options.settings.max_depth = 3;
    if (keep_last > 0) options.retention.keep_last = keep_last;
    return open_store(local_, kLocalRun, options).value();
  }

  void save(Store& store, std::uint64_t step, std::uint64_t seed = 0, bool replaces = false) {
    CommitOptions commit;
    commit.replace = replaces;
    const auto saved = store.save(step, TestState(step, seed).state(), kRunOnOne, nullptr, commit);
    ASSERT_TRUE(saved) << saved.error().message();
    seeds_[step] = seed;
    ever_[step].insert(seed);
  }

  // Empty if each checkpoint of the copy is one that the run has had, whole, and those of `must` are there as they are
  // in the run.
  std::string broken_law(const std::set<std::uint64_t>& must) {
    const auto copy = Mirrorer(bucket_).read();
    if (!copy) return must.empty() ? "" : copy.error().message();
    const auto steps = (*copy)->steps();
    if (!steps) return steps.error().message();
    for (const std::uint64_t step : must) {
      if (!std::ranges::binary_search(*steps, step)) return "step " + std::to_string(step) + " is lost";
      if (auto differs = check_step(**copy, step, TestState(step, seeds_.at(step))); !differs.empty()) return differs;
    }
    for (const std::uint64_t step : *steps) {
      std::string differs = "step " + std::to_string(step) + " was never saved";
      for (const std::uint64_t seed : ever_[step]) {
        differs = check_step(**copy, step, TestState(step, seed));
        if (differs.empty()) break;
      }
      if (!differs.empty()) return "step " + std::to_string(step) + ": " + differs;
    }
    return "";
  }

  std::set<std::uint64_t> steps_of_run() {
    const auto reader = open_store(local_, kLocalRun, {.access = StoreAccess::read}).value();
    const auto steps = reader->steps().value();
    return {steps.begin(), steps.end()};
  }

  // The files of the copy, without the lease, labels, and what says whose copy it is.
  std::vector<std::string> names_in_copy() {
    std::vector<std::string> names;
    for (const std::string& key : bucket_.keys()) {
      const std::string name = key.substr(std::string("run/").size());
      if (name != "lock" && name != "mirror-source.json" && name != "labels.json") names.push_back(name);
    }
    return names;
  }

  std::vector<std::string> names_in_run() {
    std::vector<std::string> names = {"bitsnap.json"};
    const std::vector<std::string> steps = local_.list_directory("/run/checkpoints").value();
    for (const std::string& step : steps) {
      const std::vector<std::string> files = local_.list_directory("/run/checkpoints/" + step).value();
      for (const std::string& name : files) names.push_back("checkpoints/" + step + "/" + name);
    }
    std::ranges::sort(names);
    return names;
  }

  // One change of the run.
  void change(std::mt19937_64& random) {
    const auto drawn = [&](std::uint64_t below) { return random() % below; };
    const auto store = writer(drawn(2) == 0 ? 0 : 2 + drawn(3));
    const auto steps = store->steps().value();
    const std::uint64_t next = steps.empty() ? 1 : steps.back() + 1;
    switch (steps.size() < 3 ? 0 : drawn(8)) {
      case 0:
      case 1:
      case 2:
      case 3: save(*store, next, drawn(2)); break;
      case 4: save(*store, steps.back(), 5 + drawn(9), true); break;
      case 5: ASSERT_TRUE(store->rollback(steps[drawn(steps.size())], kRunOnOne)); break;
      case 6: {
        Retention kept;
        kept.keep_last = 1 + drawn(3);
        const auto reencode = drawn(2) == 0 ? Reencode::always : Reencode::when_it_pays;
        ASSERT_TRUE(store->prune(kept, {.reencode = reencode, .run = kRunOnOne}));
        break;
      }
      default:
        if (drawn(2) == 0) {
          ASSERT_TRUE(store->label(steps[drawn(steps.size())], {"best"}));
        } else {
          ASSERT_TRUE(store->remove({steps[drawn(steps.size() - 1)]}, {.run = kRunOnOne}));
        }
    }
  }

  // The checkpoints of the copy with all that they need.
  std::map<std::uint64_t, MirroredSteps> checkpoints_of_copy() {
    const Mirrorer process(bucket_);
    std::map<std::uint64_t, MirroredSteps> found;
    if (!process.read()) return found;
    const MirroredSteps all = MirrorRecords(*process.files, RunLayout(kCopy)).read().value();
    for (const auto& [step, entry] : all) {
      if (entry.is_retired) continue;
      add_needed(found[step] = {{step, entry}}, all);
    }
    return found;
  }

  // Those that the run has as well. What a checkpoint needs may have been rolled back and saved again since: then the
  // copy has the checkpoint only when the update is complete.
  std::set<std::uint64_t> still_in_run(const std::map<std::uint64_t, MirroredSteps>& checkpoints) {
    const MirroredSteps run = MirrorRecords(local_, RunLayout(kLocalRun)).read().value();
    const auto is_same = [&](const auto& needed) {
      const auto now = run.find(needed.first);
      const CommitRecord& record = needed.second.record;
      return now != run.end() && now->second.record.time_unix_ms == record.time_unix_ms &&
             now->second.record.shards[0].id == record.shards[0].id;
    };
    std::set<std::uint64_t> steps;
    for (const auto& [step, needed] : checkpoints) {
      const auto now = run.find(step);
      const bool is_checkpoint = now != run.end() && !now->second.is_retired;
      const bool is_saved_again =
          std::ranges::any_of(needed, [&](const auto& each) { return run.contains(each.first) && !is_same(each); });
      if (is_checkpoint && is_same(*needed.find(step)) && !is_saved_again) steps.insert(step);
    }
    return steps;
  }

  os::FakeFileSystem local_;
  objects::FakeObjectStore bucket_;
  std::map<std::uint64_t, std::uint64_t> seeds_;           // of the newest save of each step
  std::map<std::uint64_t, std::set<std::uint64_t>> ever_;  // of all saves
};

}  // namespace bitsnap::store
