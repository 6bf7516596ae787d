// CrashTrial: stopping an operation, dying, and checking the result.
#include "store/crash_trial_testing.hpp"

#include <cstdlib>

#include <gtest/gtest.h>

#include "base/sanitizers_testing.hpp"
#include "store/run_layout.hpp"

namespace bitsnap::store {

using os::FakeFileSystem;
using os::FaultyFileSystem;
using os::FileOperation;
using Spares = FakeFileSystem::CrashSpares;

bool takes_samples() noexcept {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets it meanwhile
  return kHasSanitizer || std::getenv("BITSNAP_QUICK_TESTS") != nullptr;
}

void Death::strike(FakeFileSystem& files) const {
  if (kind == Kind::machine) files.crash(spares);
  if (kind == Kind::machine_at_random) files.crash_at_random(seed);
}

std::string Death::text() const {
  if (kind == Kind::process) return "the process was killed";
  if (kind == Kind::machine_at_random) return "the machine crashed with seed " + std::to_string(seed);
  constexpr const char* kSpared[] = {"nothing", "names", "contents", "everything"};
  return std::string("the machine crashed and spared ") + kSpared[static_cast<std::size_t>(spares)];
}

std::vector<Death> machine_deaths(std::uint64_t random_crashes, std::uint64_t first_seed) {
  std::vector<Death> deaths;
  for (const Spares spares : {Spares::nothing, Spares::directory_entries, Spares::file_contents, Spares::all}) {
    deaths.push_back({Death::Kind::machine, spares, 0});
  }
  for (std::uint64_t i = 0; i < random_crashes; ++i) {
    deaths.push_back({Death::Kind::machine_at_random, Spares::nothing, first_seed + i});
  }
  return deaths;
}

std::vector<Death> later_deaths(std::uint64_t seed) {
  return {{Death::Kind::machine, Spares::nothing, 0},
          {Death::Kind::machine, Spares::directory_entries, 0},
          {Death::Kind::machine_at_random, Spares::nothing, seed}};
}

bool changes_something(const FaultyFileSystem::Step& step) {
  switch (step.operation) {
    case FileOperation::open:
    case FileOperation::read:
    case FileOperation::close:
    case FileOperation::list_directory:
    case FileOperation::stat:
    case FileOperation::check_writable: return false;
    default: return true;
  }
}

std::string step_text(const FaultyFileSystem::Step& step) {
  return std::string(file_operation_name(step.operation)) + " " + step.path + (step.to.empty() ? "" : " to " + step.to);
}

namespace {

// Whether a crash that loses only this directory's unsynced names would change the store.
bool has_unsynced_names(const FakeFileSystem& files, const std::string& directory) {
  const auto with = files.copy();
  const auto without = files.copy();
  std::vector<std::string> others = {"/"};
  for (const FakeFileSystem::DiskName& name : without->all_names()) {
    if (name.is_directory) others.push_back(name.path);
  }
  std::erase(others, directory);
  for (const std::string& other : others) static_cast<void>(without->sync_directory(other));  // fails for missing ones
  with->crash(Spares::all);
  without->crash(Spares::file_contents);
  return fingerprint(*with, TensorIndexes::ignored) != fingerprint(*without, TensorIndexes::ignored);
}

// Runs the calls on `files` and records their file operations.
OperationLog record_operations(FakeFileSystem& files, Journal& journal, const CrashScenario::Calls& calls) {
  OperationLog log;
  FaultyFileSystem faulty(files);
  std::uint64_t syncs = 0;
  faulty.watch([&](const FaultyFileSystem::Step& step) {
    if (step.operation != FileOperation::sync && step.operation != FileOperation::sync_directory) return;
    const std::uint64_t number = syncs++;
    // A sync of a file always counts, because the store syncs only files that it has written.
    const bool is_needed = step.operation == FileOperation::sync || has_unsynced_names(files, step.path);
    if (is_needed) log.needed_syncs.insert(number);
  });
  const Result<void> done = calls(faulty, journal);
  EXPECT_TRUE(done) << done.error().message();
  log.steps = faulty.steps();
  return log;
}

}  // namespace

CrashTrial::CrashTrial(const CrashScenario& scenario, bool has_directory_sync) : scenario_(scenario) {
  if (!has_directory_sync) before_.refuse_directory_sync();
  EXPECT_TRUE(scenario_.prepare(before_, run_));
  Journal journal = run_;
  log_ = record_operations(*before_.copy(), journal, scenario_.operate);
}

std::vector<FaultyFileSystem::Step> CrashTrial::steps_going_on(const Stopped& stopped) const {
  const auto files = stopped.files->copy();
  FaultyFileSystem faulty(*files);
  Journal journal = stopped.journal;
  const Result<void> done = scenario_.go_on(faulty, journal);
  EXPECT_TRUE(done) << done.error().message();
  return faulty.steps();
}

OperationLog CrashTrial::log_going_on(const Stopped& stopped) const {
  Journal journal = stopped.journal;
  return record_operations(*stopped.files->copy(), journal, scenario_.go_on);
}

std::vector<std::uint64_t> CrashTrial::points() const {
  std::vector<std::uint64_t> points;
  for (std::uint64_t point = 0; point < log_.steps.size(); ++point) {
    if (changes_something(log_.steps[point])) points.push_back(point);
  }
  points.push_back(log_.steps.size());
  return points;
}

std::string CrashTrial::at(std::uint64_t point) const {
  if (point >= log_.steps.size()) return "when it was done";
  return "at operation " + std::to_string(point) + ", " + step_text(log_.steps[point]);
}

Stopped CrashTrial::stop_at(std::uint64_t point, bool half_done) const {
  Stopped stopped{before_.copy(), run_};
  FaultyFileSystem faulty(*stopped.files);
  if (point < log_.steps.size())
    faulty.fail_at(point, {.kind = ErrorKind::io, .lasting = true, .half_done = half_done});
  const Result<void> done = scenario_.operate(faulty, stopped.journal);
  EXPECT_TRUE(done || point < log_.steps.size()) << done.error().message();
  return stopped;
}

std::map<std::uint64_t, Stopped> CrashTrial::kill_everywhere() const {
  std::map<std::uint64_t, Stopped> killed;
  const auto files = before_.copy();
  FaultyFileSystem faulty(*files);
  Journal journal = run_;
  std::uint64_t point = 0;
  faulty.watch([&](const FaultyFileSystem::Step& step) {
    if (changes_something(step)) killed.emplace(point, Stopped{files->copy(), journal});
    ++point;
  });
  const Result<void> done = scenario_.operate(faulty, journal);
  EXPECT_TRUE(done) << done.error().message();
  killed.emplace(point, Stopped{files->copy(), journal});
  return killed;
}

Stopped CrashTrial::fail_once_at(std::uint64_t point, bool half_done) const {
  Stopped stopped{before_.copy(), run_};
  FaultyFileSystem faulty(*stopped.files);
  faulty.fail_at(point, {.kind = ErrorKind::io, .lasting = false, .half_done = half_done});
  static_cast<void>(scenario_.operate(faulty, stopped.journal));
  return stopped;
}

std::string CrashTrial::check(const FakeFileSystem& stopped, const Journal& journal, const Death& death) {
  const auto files = stopped.copy();
  death.strike(*files);
  const bool has_crashed = death.kind != Death::Kind::process;
  const std::string broken =
      check_left(*files, journal, has_crashed ? TensorIndexes::ignored : TensorIndexes::compared);
  return broken.empty() ? "" : death.text() + ": " + broken;
}

std::string CrashTrial::check_left(FakeFileSystem& files, const Journal& journal, TensorIndexes indexes) {
  ++cases_;
  std::pair disk(fingerprint(files, indexes), journal.allowed());
  if (checked_.contains(disk)) return "";
  std::string broken = scenario_.broken_law(files, disk.second, scenario_.options);
  if (broken.empty()) checked_.insert(std::move(disk));
  return broken;
}

std::string CrashTrial::check_without(const std::vector<std::uint64_t>& skipped_syncs,
                                      const std::vector<Death>& deaths) {
  const auto files = before_.copy();
  FaultyFileSystem faulty(*files);
  for (const std::uint64_t sync : skipped_syncs) faulty.skip_sync(sync);
  Journal journal = run_;
  return check_while(faulty, *files, journal, deaths, scenario_.operate);
}

std::string CrashTrial::check_going_on(const Stopped& stopped, const std::vector<Death>& deaths,
                                       const std::vector<std::uint64_t>& skipped_syncs) {
  const auto files = stopped.files->copy();
  FaultyFileSystem faulty(*files);
  for (const std::uint64_t sync : skipped_syncs) faulty.skip_sync(sync);
  Journal journal = stopped.journal;
  return check_while(faulty, *files, journal, deaths, scenario_.go_on);
}

std::string CrashTrial::check_while(FaultyFileSystem& faulty, const FakeFileSystem& files, Journal& journal,
                                    const std::vector<Death>& deaths, const CrashScenario::Calls& calls) {
  std::string broken;
  const auto look = [&](const std::string& where) {
    for (const Death& death : deaths) {
      broken = check(files, journal, death);
      if (broken.empty()) continue;
      broken = where + ", " + broken;
      return;
    }
  };
  faulty.watch([&](const FaultyFileSystem::Step& step) {
    if (broken.empty() && changes_something(step)) look("before " + step_text(step));
  });
  const Result<void> done = calls(faulty, journal);
  faulty.watch(nullptr);
  if (!broken.empty()) return broken;
  if (!done) return done.error().message();
  look("in the end");
  return broken;
}

}  // namespace bitsnap::store
