// Repairs as crash scenarios: each damages a store in one way.
#include "store/crash_repairs_testing.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/try.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::store {
namespace {

using Calls = CrashScenario::Calls;
using Damage = std::function<Result<void>(os::FileSystem&)>;

StoreOptions options_of(StoreAccess access) {
  StoreOptions options;
  options.access = access;
  options.settings.max_depth = 2;
  return options;
}

using Tensors = std::set<std::pair<std::uint32_t, std::string>>;

Tensors of_shard(std::uint32_t shard, const std::set<std::string>& names) {
  Tensors tensors;
  for (const std::string& name : names) tensors.emplace(shard, name);
  return tensors;
}

// The damage of a run, and what it means for its steps.
struct DamagedRun {
  std::set<std::uint64_t> lost;     // no repair can save them; a repair sets their files aside
  std::set<std::uint64_t> hidden;   // unreadable until they are repaired
  std::set<std::uint64_t> retired;  // retired before; if damaged, set aside or removed by a prune
  // Of the steps that stay as damaged, what cannot be read.
  std::map<std::uint64_t, Tensors> kept = {};
  bool is_openable = true;  // before the repair
};

// Flips one bit of the file, or removes the file if `flipped` is nullopt. Synced at once, because damage survives
// crashes.
Result<void> damage_file(os::FileSystem& files, const std::string& path, std::optional<std::uint64_t> flipped) {
  BITSNAP_ASSIGN(std::vector<std::byte> bytes, os::read_file(files, path, 1 << 24));
  BITSNAP_TRY(files.remove(path));
  if (flipped) {
    bytes.at(*flipped) ^= std::byte{1};
    BITSNAP_ASSIGN(const auto file, files.create(path));
    BITSNAP_TRY(file->append(bytes));
    BITSNAP_TRY(file->sync());
    BITSNAP_TRY(file->close());
  }
  BITSNAP_TRY(files.sync_directory(os::parent_directory(path)));
  return {};
}

std::string path_of(std::uint64_t step, const std::string& name) { return RunLayout(kTestRun).step_file(step, name); }

constexpr const char* kOnlyFile = "shard-00000-of-00001.bsnap";
// Offset in the first payload of a file, which belongs to a tensor that every step changes.
constexpr std::uint64_t kFirstPayload = 70;

// Flips a bit in the pool of a step. No other step depends on this chunk.
Result<void> damage_pool(os::FileSystem& files, std::uint64_t step) {
  BITSNAP_ASSIGN(const auto store, open_store(files, kTestRun, {}));
  BITSNAP_ASSIGN(const auto snapshot, store->snapshot(step));
  BITSNAP_ASSIGN(const ChunkInfo chunk, snapshot->chunk_info(snapshot->streams().size() - 1, 0));
  return damage_file(files, path_of(step, kOnlyFile), chunk.offset);
}

// Flips a bit in the index of a step.
Result<void> damage_index(os::FileSystem& files, std::uint64_t step) {
  BITSNAP_ASSIGN(const os::FileInfo info, files.stat(path_of(step, kOnlyFile)));
  return damage_file(files, path_of(step, kOnlyFile), info.size_bytes - 60);
}

// An entry in the journal that stands for the damage: a repair is due.
constexpr std::uint64_t kRepairDue = 0;

TestRun repaired_run(const TestRun& run) {
  TestRun after = run;
  after.erase(kRepairDue);
  return after;
}

Calls repairs() {
  return [](os::FileSystem& files, Journal& journal) -> Result<void> {
    journal.begin([](const TestRun& run) { return std::vector{repaired_run(run)}; });
    RepairOptions options;
    options.run = kOneThread;
    BITSNAP_TRY(repair_store(files, kTestRun, options));
    journal.confirm(repaired_run, true);
    return {};
  };
}

// Saves, then damages the store. The journal then holds what a repair must save.
Calls with_damage(const std::function<Result<void>(os::FileSystem&, Journal&)>& saves, const Damage& damage,
                  const DamagedRun& damaged) {
  return [=](os::FileSystem& files, Journal& journal) -> Result<void> {
    BITSNAP_TRY(saves(files, journal));
    BITSNAP_TRY(damage(files));
    journal.confirm(
        [&](const TestRun& run) {
          TestRun after = run;
          std::erase_if(after, [&](const auto& entry) { return damaged.lost.contains(entry.first); });
          for (const auto& [step, tensors] : damaged.kept) after[step].damaged = tensors;
          after[kRepairDue] = {};
          return after;
        },
        true);
    return {};
  };
}

Calls saves(std::uint64_t last, const std::vector<std::uint64_t>& kept = {}) {
  return [=](os::FileSystem& files, Journal& journal) -> Result<void> {
    BITSNAP_ASSIGN(const auto store, open_store(files, kTestRun, options_of(StoreAccess::write)));
    for (std::uint64_t step = 1; step <= last; ++step) BITSNAP_TRY(save_step(*store, journal, step));
    if (kept.empty()) return {};
    Retention retention;
    retention.keep = kept;
    return prune_steps(*store, journal, retention);
  };
}

// Every step has files, but a repair cannot save those of `damaged`.
Calls saves_files(std::uint64_t last, std::uint64_t damaged) {
  return [=](os::FileSystem& files, Journal& journal) -> Result<void> {
    BITSNAP_ASSIGN(const auto store, open_store(files, kTestRun, options_of(StoreAccess::write)));
    for (std::uint64_t step = 1; step <= last; ++step) {
      const CommitOptions commit{.files = {{"config.json", std::vector<std::byte>(50, std::byte(step))}}};
      BITSNAP_TRY(save_step(*store, journal, step, 0, Destination::disk, commit));
    }
    journal.confirm(
        [&](const TestRun& run) {
          TestRun after = run;
          after[damaged].files.clear();
          return after;
        },
        true);
    return {};
  };
}

Result<void> damage_files(os::FileSystem& files, std::uint64_t step) {
  BITSNAP_ASSIGN(const CommitRecord record, read_commit_record(files, RunLayout(kTestRun), step));
  return damage_file(files, path_of(step, record.files->file), kFirstPayload);
}

Calls ranks_save(std::uint64_t last) {
  return [=](os::FileSystem& files, Journal& journal) -> Result<void> {
    BITSNAP_ASSIGN(const auto a, open_store(files, kTestRun, options_of(StoreAccess::shared)));
    BITSNAP_ASSIGN(const auto b, open_store(files, kTestRun, options_of(StoreAccess::shared)));
    for (std::uint64_t step = 1; step <= last; ++step) BITSNAP_TRY(save_two_shards(*a, *b, journal, step));
    return {};
  };
}

// Continues the training with what the repair has left, and prunes what may be removed.
Calls trains_on() {
  return [](os::FileSystem& files, Journal& journal) -> Result<void> {
    BITSNAP_ASSIGN(const auto store, open_store(files, kTestRun, options_of(StoreAccess::write)));
    BITSNAP_ASSIGN(const std::vector<std::uint64_t> steps, store->steps());
    const std::uint64_t newest = journal.run().empty() ? 0 : journal.run().rbegin()->first;
    BITSNAP_TRY(save_step(*store, journal, std::max(newest, steps.empty() ? 0 : steps.back()) + 1));
    Retention all;
    all.keep_last = 1'000'000;
    PruneOptions options;
    options.run = kOneThread;
    BITSNAP_TRY(store->prune(all, options));
    return {};
  };
}

// Returns an empty string if one of the allowed runs is readable, except for its damaged steps.
std::string check_readable(os::FakeFileSystem& files, const std::vector<TestRun>& allowed, const DamagedRun& damaged) {
  const auto store = open_store(files, kTestRun, {});
  if (!store) return damaged.is_openable ? store.error().message() : "";
  const auto steps = (*store)->steps();
  if (!steps) return steps.error().message();
  std::string wrong = fmt::format("shows steps {}", *steps);
  for (const TestRun& run : allowed) {
    const auto is_explained = [&](std::uint64_t step) {
      return run.contains(step) || damaged.lost.contains(step) || damaged.hidden.contains(step);
    };
    if (!std::ranges::all_of(*steps, is_explained)) continue;
    std::string broken;
    for (const auto& [step, content] : run) {
      if (damaged.hidden.contains(step)) continue;
      broken = check_step_content(**store, step, content);
      if (!broken.empty()) {
        wrong = broken;
        break;
      }
    }
    if (broken.empty()) return "";
  }
  return wrong;
}

// Checks that the repair has kept the damaged files in damaged/.
std::string check_set_aside(os::FakeFileSystem& files, const DamagedRun& damaged) {
  const auto names = files.list_directory(RunLayout(kTestRun).damaged());
  for (const std::uint64_t step : damaged.lost) {
    const bool is_there = names && std::ranges::any_of(*names, [&](const std::string& name) {
                            return name.starts_with(step_name(step));
                          });
    if (!is_there) return fmt::format("step {} is not among what was set aside", step);
  }
  return "";
}

// The law of a repair. If it was completed, all laws hold. If it was stopped, everything readable before is still
// readable, a second repair saves the rest, and then all laws hold.
std::string broken_repair_law(os::FakeFileSystem& files, const std::vector<TestRun>& due_or_done,
                              const StoreOptions& options, const DamagedRun& damaged) {
  const bool is_due = std::ranges::any_of(due_or_done, [](const TestRun& run) { return run.contains(kRepairDue); });
  std::vector<TestRun> allowed;
  std::ranges::transform(due_or_done, std::back_inserter(allowed), repaired_run);
  if (!is_due) {
    std::string wrong = broken_law(files, allowed, options);
    return wrong.empty() ? check_set_aside(files, damaged) : wrong;
  }
  if (std::string wrong = check_readable(files, allowed, damaged); !wrong.empty()) return wrong;
  RepairOptions repairing;
  repairing.run = kOneThread;
  const auto repaired = repair_store(files, kTestRun, repairing);
  if (!repaired) return "another repair: " + repaired.error().message();
  for (const RepairReport::Dropped& dropped : repaired->dropped) {
    if (!damaged.lost.contains(dropped.step) && !damaged.retired.contains(dropped.step))
      return fmt::format("another repair drops step {}", dropped.step);
  }
  if (std::string wrong = check_set_aside(files, damaged); !wrong.empty()) return wrong;
  // A step whose removal was interrupted looks like a step that has lost its record, so a repair may bring it back.
  const auto shown = shown_steps(files);
  if (!shown) return shown.error().message();
  for (TestRun& run : allowed) {
    for (const std::uint64_t step : damaged.retired) {
      if (std::ranges::binary_search(*shown, step)) run[step] = {};
    }
  }
  if (std::string wrong = broken_law(files, allowed, options); !wrong.empty()) return "repaired: " + wrong;
  return check_set_aside(files, damaged);
}

CrashScenario scenario(const std::string& name, const Calls& before, const Damage& damage, const DamagedRun& damaged,
                       const Calls& go_on) {
  CrashScenario made{name, options_of(StoreAccess::write), with_damage(before, damage, damaged), repairs(), go_on};
  made.broken_law = [damaged](os::FakeFileSystem& files, const std::vector<TestRun>& allowed,
                              const StoreOptions& options) {
    return broken_repair_law(files, allowed, options, damaged);
  };
  return made;
}

}  // namespace

// Steps 1 and 4 are keyframes. A keyframe refers to chunks that have not changed since the previous keyframe.
std::vector<CrashScenario> crash_repairs() {
  std::vector<CrashScenario> scenarios;
  scenarios.push_back(scenario(
      "RepairingADamagedKeyframe", saves(6),
      [](os::FileSystem& files) { return damage_file(files, path_of(4, kOnlyFile), kFirstPayload); },
      {.lost = {},
       .hidden = {},
       .retired = {},
       .kept = {{4, of_shard(0, {"weight"})}, {5, of_shard(0, {"weight"})}, {6, of_shard(0, {"weight"})}}},
      trains_on()));
  scenarios.push_back(scenario(
      "RepairingADamagedPool", saves(6), [](os::FileSystem& files) { return damage_pool(files, 4); },
      {.lost = {}, .hidden = {}, .retired = {}, .kept = {{4, of_shard(0, {"step"})}}}, trains_on()));
  scenarios.push_back(scenario(
      "RepairingADamagedIndex", saves(6), [](os::FileSystem& files) { return damage_index(files, 4); },
      {.lost = {4},
       .hidden = {},
       .retired = {},
       .kept = {{5, of_shard(0, {"other", "weight"})}, {6, of_shard(0, {"other", "weight"})}}},
      trains_on()));
  scenarios.push_back(scenario(
      "RepairingLostRecords", saves(6),
      [](os::FileSystem& files) -> Result<void> {
        BITSNAP_TRY(damage_file(files, path_of(2, std::string(kCommitName)), std::nullopt));
        return damage_file(files, path_of(5, std::string(kCommitName)), 40);
      },
      {{}, {2, 3, 5, 6}, {}}, repairs()));
  scenarios.push_back(scenario(
      "RepairingALostRunRecord", saves(4),
      [](os::FileSystem& files) -> Result<void> {
        BITSNAP_TRY(damage_file(files, path_of(4, kOnlyFile), std::nullopt));
        return damage_file(files, RunLayout(kTestRun).run_record(), std::nullopt);
      },
      {.lost = {4}, .hidden = {}, .retired = {}, .is_openable = false}, repairs()));
  scenarios.push_back(scenario(
      "RepairingDamagedFiles", saves_files(3, 2),
      [](os::FileSystem& files) -> Result<void> {
        BITSNAP_TRY(damage_files(files, 2));
        return damage_file(files, path_of(3, std::string(kCommitName)), 40);
      },
      {{}, {3}, {}}, trains_on()));
  scenarios.push_back(scenario(
      "RepairingARetiredStep", saves(6, {3, 5}),
      [](os::FileSystem& files) { return damage_file(files, path_of(2, kOnlyFile), kFirstPayload); },
      {.lost = {}, .hidden = {}, .retired = {1, 2, 4}, .kept = {{3, of_shard(0, {"weight"})}}}, trains_on()));
  scenarios.push_back(scenario(
      "RepairingAShard", ranks_save(4),
      [](os::FileSystem& files) {
        return damage_file(files, path_of(2, "shard-00001-of-00002.a1.bsnap"), std::nullopt);
      },
      {.lost = {}, .hidden = {}, .retired = {}, .kept = {{2, of_shard(1, {""})}, {3, of_shard(1, {"weight"})}}},
      trains_on()));
  return scenarios;
}

}  // namespace bitsnap::store
