// One scenario of crash_scenarios_testing.hpp: stopped where the test says, left to die in the way that it says, and
// what is left held against the laws. For the crash tests only; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "store/crash_scenarios_testing.hpp"
#include "store/store_laws_testing.hpp"

namespace bitsnap::store {

// With a sanitizer everything takes ten times as long: fewer crashes are tried. So they are where BITSNAP_QUICK_TESTS
// is set, for the time between two edits.
[[nodiscard]] bool takes_samples() noexcept;

// A way to die.
struct Death {
  enum class Kind : std::uint8_t { process, machine, machine_at_random };
  Kind kind = Kind::process;
  os::FakeFileSystem::CrashSpares spares = os::FakeFileSystem::CrashSpares::nothing;
  std::uint64_t seed = 0;

  void strike(os::FakeFileSystem& files) const;
  [[nodiscard]] std::string text() const;
};

// Each kind of crash, and so many of those where chance decides.
[[nodiscard]] std::vector<Death> machine_deaths(std::uint64_t random_crashes, std::uint64_t first_seed);
// Fewer, for those who go on after a death of the process, of whom there are many.
[[nodiscard]] std::vector<Death> later_deaths(std::uint64_t seed);

// Whether the disk is another after it.
[[nodiscard]] bool changes_something(const os::FaultyFileSystem::Step& step);
[[nodiscard]] std::string step_text(const os::FaultyFileSystem::Step& step);

// A store in which an operation was stopped.
struct Stopped {
  std::unique_ptr<os::FakeFileSystem> files;
  Journal journal;
};

// The operations of files of a run, and which of its syncs (by number) made anything safe that was not.
struct OperationLog {
  std::vector<os::FaultyFileSystem::Step> steps;
  std::set<std::uint64_t> needed_syncs;
};

// Holds the store before the operation, and the operations of files that it makes.
class CrashTrial {
 public:
  explicit CrashTrial(const CrashScenario& scenario, bool has_directory_sync = true);

  [[nodiscard]] const std::vector<os::FaultyFileSystem::Step>& steps() const { return log_.steps; }
  [[nodiscard]] const OperationLog& log() const { return log_; }
  // The points to stop at: before each that changes something, and when all is done.
  [[nodiscard]] std::vector<std::uint64_t> points() const;
  [[nodiscard]] std::string at(std::uint64_t point) const;

  // Up to the operation with that number, which is not done, or in part.
  [[nodiscard]] Stopped stop_at(std::uint64_t point, bool half_done) const;

  // The operation with that number fails, and what comes after does not.
  [[nodiscard]] Stopped fail_once_at(std::uint64_t point, bool half_done) const;

  // These let copies die and look at what is left. They are empty if all laws hold; else they say where and how not.
  [[nodiscard]] std::string check(const os::FakeFileSystem& stopped, const Journal& journal, const Death& death);
  // Does everything but some syncs; dies at each operation.
  [[nodiscard]] std::string check_without(const std::vector<std::uint64_t>& skipped_syncs,
                                          const std::vector<Death>& deaths);
  // Goes on with what the death of the process left, again without some syncs; dies at each operation.
  [[nodiscard]] std::string check_going_on(const Stopped& stopped, const std::vector<Death>& deaths,
                                           const std::vector<std::uint64_t>& skipped_syncs = {});
  // What going on does.
  [[nodiscard]] OperationLog log_going_on(const Stopped& stopped) const;

  [[nodiscard]] std::uint64_t cases() const { return cases_; }
  [[nodiscard]] std::uint64_t different_cases() const { return checked_.size(); }

 private:
  std::string check_while(os::FaultyFileSystem& faulty, const os::FakeFileSystem& files, Journal& journal,
                          const std::vector<Death>& deaths, const CrashScenario::Calls& calls);

  const CrashScenario& scenario_;
  os::FakeFileSystem before_;
  Journal run_;
  OperationLog log_;
  std::uint64_t cases_ = 0;
  std::set<std::pair<std::uint64_t, std::vector<TestRun>>> checked_;
};

}  // namespace bitsnap::store
