// CrashTrial: runs a scenario of crash_scenarios_testing.hpp, stops it where the test says, lets the process or the
// machine die, and checks the laws of the store. For the crash tests only; belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
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

// Whether the tests try only a sample of the crashes. True with a sanitizer, which makes everything ten times slower,
// and if BITSNAP_QUICK_TESTS is set, for quick runs between two edits.
[[nodiscard]] bool takes_samples() noexcept;

// A way in which the process or the machine dies.
struct Death {
  enum class Kind : std::uint8_t { process, machine, machine_at_random };
  Kind kind = Kind::process;
  os::FakeFileSystem::CrashSpares spares = os::FakeFileSystem::CrashSpares::nothing;
  std::uint64_t seed = 0;

  void strike(os::FakeFileSystem& files) const;
  [[nodiscard]] std::string text() const;
};

// Every kind of machine crash, and `random_crashes` random ones, with seeds from `first_seed` on.
[[nodiscard]] std::vector<Death> machine_deaths(std::uint64_t random_crashes, std::uint64_t first_seed);
// A smaller selection for crashes that follow the death of a process, because there are many of these.
[[nodiscard]] std::vector<Death> later_deaths(std::uint64_t seed);

// Whether the operation changes the disk.
[[nodiscard]] bool changes_something(const os::FaultyFileSystem::Step& step);
[[nodiscard]] std::string step_text(const os::FaultyFileSystem::Step& step);

// A store in which an operation was stopped, and its journal.
struct Stopped {
  std::unique_ptr<os::FakeFileSystem> files;
  Journal journal;
};

// The file operations of a run, and the numbers of the syncs that made something durable.
struct OperationLog {
  std::vector<os::FaultyFileSystem::Step> steps;
  std::set<std::uint64_t> needed_syncs;
};

// Holds the store as it is before the operation, and the file operations that the operation makes.
class CrashTrial {
 public:
  explicit CrashTrial(const CrashScenario& scenario, bool has_directory_sync = true);

  [[nodiscard]] const std::vector<os::FaultyFileSystem::Step>& steps() const { return log_.steps; }
  [[nodiscard]] const OperationLog& log() const { return log_; }
  // The points to stop at: before each file operation that changes something, and at the end.
  [[nodiscard]] std::vector<std::uint64_t> points() const;
  [[nodiscard]] std::string at(std::uint64_t point) const;

  // Runs the operation until file operation `point` fails, undone or half done. Everything after it fails, too.
  [[nodiscard]] Stopped stop_at(std::uint64_t point, bool half_done) const;

  // The store as it is at each of the points when the process is killed there, from a single run of the operation.
  [[nodiscard]] std::map<std::uint64_t, Stopped> kill_everywhere() const;

  // Runs the operation. File operation `point` fails, and later ones succeed.
  [[nodiscard]] Stopped fail_once_at(std::uint64_t point, bool half_done) const;

  // The checks let copies of the store die, and check what is left. They return an empty string if all laws hold,
  // otherwise which law is broken and where.
  [[nodiscard]] std::string check(const os::FakeFileSystem& stopped, const Journal& journal, const Death& death);
  // Checks what is left without a death, and changes it. The disk and the allowed runs decide the result, so the same
  // pair is checked only once.
  [[nodiscard]] std::string check_left(os::FakeFileSystem& files, const Journal& journal,
                                       TensorIndexes indexes = TensorIndexes::compared);
  // Runs the operation without some syncs, and dies at each file operation.
  [[nodiscard]] std::string check_without(const std::vector<std::uint64_t>& skipped_syncs,
                                          const std::vector<Death>& deaths);
  // Continues after the death of the process, also without some syncs, and dies at each file operation.
  [[nodiscard]] std::string check_going_on(const Stopped& stopped, const std::vector<Death>& deaths,
                                           const std::vector<std::uint64_t>& skipped_syncs = {});
  // The file operations of continuing, without looking which syncs are needed, for which each is tried.
  [[nodiscard]] std::vector<os::FaultyFileSystem::Step> steps_going_on(const Stopped& stopped) const;
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
