// A journal knows the run only. So labels of its newest step are the witnesses of what must have become of the branch:
// "made" is given when the branch exists, "going" before it is removed, and "gone" afterwards.
#include "store/crash_branches_testing.hpp"

#include <functional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::store {
namespace {

constexpr const char* kBranchName = "b";
constexpr const char* kBranchPath = "/run/branches/b";

StoreOptions writing_branches(std::uint64_t keep_last = 0) {
  StoreOptions options;
  options.access = StoreAccess::write;
  options.settings.max_depth = 3;
  options.prunes = false;
  if (keep_last > 0) options.retention.keep_last = keep_last;
  return options;
}

using OnRun = std::function<Result<void>(os::FileSystem&, Store&, Journal&)>;

// Opens the run as `options` say and makes the calls.
CrashScenario::Calls on_run(const StoreOptions& options, const OnRun& calls) {
  return [=](os::FileSystem& files, Journal& journal) -> Result<void> {
    BITSNAP_ASSIGN(const auto store, open_store(files, kTestRun, options));
    BITSNAP_ASSIGN(const TestRun shown, shown_run(*store));
    if (!journal.open(shown, content_of(*store), [](const TestRun&) { return false; })) {
      return fail(ErrorKind::internal, "shows steps that are not allowed");
    }
    return calls(files, *store, journal);
  };
}

std::set<std::string> witnesses(const TestRun& run) {
  std::set<std::string> all;
  for (const auto& [step, content] : run) all.insert(content.labels.begin(), content.labels.end());
  return all;
}

Result<void> witness(Store& store, Journal& journal, const std::string& label) {
  return label_step(store, journal, journal.run().rbegin()->first, label);
}

// Makes the branch at the step, or opens it to write if it exists, which makes it safe; and leaves the witness.
Result<void> make(os::FileSystem& files, Store& store, Journal& journal, std::uint64_t step, bool with_later) {
  BITSNAP_ASSIGN(const std::vector<Branch> branches, store.branches());
  if (branches.empty()) {
    BITSNAP_TRY(store.make_branch(kBranchName, step, {.with_later = with_later, .run = kOneThread}));
  } else {
    BITSNAP_TRY(open_store(files, kBranchPath, writing_branches()));
  }
  return witness(store, journal, "made");
}

Result<void> take_away(os::FileSystem&, Store& store, Journal& journal) {
  BITSNAP_TRY(witness(store, journal, "going"));
  Result<void> removed = store.remove_branch(kBranchName);
  if (!removed && removed.error().kind() != ErrorKind::not_found) return removed;
  return witness(store, journal, "gone");
}

// The branch has these steps with the states that the run had, and goes on as a store of its own.
std::string check_branch(os::FakeFileSystem& files, const std::vector<std::uint64_t>& steps, std::uint64_t origin) {
  {
    const auto reader = open_store(files, kTestRun, {});
    if (!reader) return reader.error().message();
    const auto listed = (*reader)->branches();
    if (!listed) return listed.error().message();
    if (listed->size() != 1 || listed->front().damage || !listed->front().origin) return "is not listed";
    if (listed->front().origin->step != origin) return "has another origin";
    if (listed->front().origin->run_id != (*reader)->run_id()) return "is of another run";
  }
  const auto branch = open_store(files, kBranchPath, writing_branches());
  if (!branch) return branch.error().message();
  const auto shown = (*branch)->steps();
  if (!shown || *shown != steps) return "shows other steps";
  for (const std::uint64_t step : steps) {
    if (std::string wrong = check_step_content(**branch, step, {}); !wrong.empty()) return wrong;
  }
  const auto verified = (*branch)->verify({.run = kOneThread});
  if (!verified || !verified->damages.empty()) return "has damage";
  const std::uint64_t next = steps.back() + 1;
  const auto saved = (*branch)->save(next, test_state(next, 0).state(), kOneThread);
  if (!saved) return saved.error().message();
  if (saved->damage) return "its next save found no base: " + saved->damage->message();
  return check_step_content(**branch, next, {});
}

// The laws of the run, and: the branch is whole or not there, and it is there between its witnesses.
CrashScenario::Law branch_law(const std::vector<std::uint64_t>& steps, std::uint64_t origin) {
  return [=](os::FakeFileSystem& files, const std::vector<TestRun>& allowed, const StoreOptions& options) {
    TestRun found;
    if (std::string wrong = check_shown(files, allowed, &found); !wrong.empty()) return wrong;
    const std::set<std::string> labels = witnesses(found);
    const bool is_there = files.stat(kBranchPath)->exists;
    if (labels.contains("made") && !labels.contains("going") && !is_there) return std::string("the branch is lost");
    if (labels.contains("gone") && is_there) return std::string("the branch has come back");
    if (is_there) {
      if (std::string wrong = check_branch(files, steps, origin); !wrong.empty()) return "the branch " + wrong;
    }
    // The next process can make another one, and removes what a killed one left.
    const auto store = open_store(files, kTestRun, {});
    if (!store || found.empty()) return broken_law(files, allowed, options);
    const auto made = (*store)->make_branch("other", found.begin()->first, {.run = kOneThread});
    if (!made) return "another branch: " + made.error().message();
    const auto names = files.list_directory(RunLayout(kTestRun).branches()).value();
    const std::vector<std::string> expected =
        is_there ? std::vector<std::string>{".lock", kBranchName, "other"} : std::vector<std::string>{".lock", "other"};
    if (names != expected) return std::string("something is left in the directory of branches");
    const bool has_directory_sync = *files.sync_directory("/") == os::DirectorySync::done;
    const auto crashed = files.copy();
    crashed->crash(has_directory_sync ? os::FakeFileSystem::CrashSpares::nothing
                                      : os::FakeFileSystem::CrashSpares::directory_entries);
    if (is_there && !crashed->stat(kBranchPath)->exists) return std::string("the branch is lost later");
    return broken_law(files, allowed, options);
  };
}

}  // namespace

std::vector<CrashScenario> crash_branches() {
  const auto saves = [](std::uint64_t first, std::uint64_t last) {
    return [=](os::FileSystem&, Store& store, Journal& journal) -> Result<void> {
      for (std::uint64_t step = first; step <= last; ++step) BITSNAP_TRY(save_step(store, journal, step));
      return {};
    };
  };
  const auto makes = [](std::uint64_t step, bool with_later = false) {
    return [=](os::FileSystem& files, Store& store, Journal& journal) {
      return make(files, store, journal, step, with_later);
    };
  };
  const StoreOptions plain = writing_branches();
  const StoreOptions three = writing_branches(3);
  const CrashScenario::Calls four = on_run(plain, saves(1, 4));
  std::vector<CrashScenario> scenarios;
  scenarios.push_back(
      {"MakingABranch", plain, four, on_run(plain, makes(3)), on_run(plain, makes(3)), branch_law({3}, 3)});
  scenarios.push_back({"MakingABranchWithLaterSteps", plain,
                       on_run(plain,
                              [=](os::FileSystem& files, Store& store, Journal& journal) -> Result<void> {
                                BITSNAP_TRY(saves(1, 3)(files, store, journal));
                                return label_step(store, journal, 2, "best");
                              }),
                       on_run(plain, makes(2, true)), on_run(plain, makes(2, true)), branch_law({2, 3}, 2)});
  // With these states, two of three checkpoints are coded against the later one.
  const auto retain = [](os::FileSystem&, Store& store, Journal& journal) -> Result<void> {
    Retention newest;
    newest.keep_last = 3;
    for (std::uint64_t step = 1; step <= 6; ++step) {
      BITSNAP_TRY(save_step(store, journal, step));
      BITSNAP_TRY(prune_steps(store, journal, newest, Reencode::when_it_pays));
    }
    return {};
  };
  scenarios.push_back({"MakingABranchOfALaterBase", three, on_run(three, retain), on_run(three, makes(5)),
                       on_run(three, makes(5)), branch_law({5}, 5)});
  scenarios.push_back({"RemovingABranch", plain,
                       on_run(plain,
                              [=](os::FileSystem& files, Store& store, Journal& journal) -> Result<void> {
                                BITSNAP_TRY(saves(1, 3)(files, store, journal));
                                return makes(2)(files, store, journal);
                              }),
                       on_run(plain, take_away), on_run(plain, take_away), branch_law({2}, 2)});
  return scenarios;
}

}  // namespace bitsnap::store
