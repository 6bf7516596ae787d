// What has to be true of a store whatever happened to it, for the tests of crashes and failures: what a run may hold at
// each moment is kept in a journal, and what is found is held against it, read back, saved to, pruned and crashed
// again.
//
// Everything is of one store at /run of a file system in memory, written by one thread, so that the same calls make the
// same operations in the same order.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/store.hpp>

#include "os/file_system_fake.hpp"
#include "store/pending_save.hpp"
#include "store/run_testing.hpp"

namespace bitsnap::store {

inline constexpr const char* kTestRun = "/run";

// What was saved as one step.
struct TestStep {
  std::uint64_t seed = 0;
  std::uint32_t shards = 1;

  [[nodiscard]] std::uint64_t shard_seed(std::uint32_t shard) const noexcept { return seed * 100 + shard; }
  friend auto operator<=>(const TestStep&, const TestStep&) = default;
};
using TestRun = std::map<std::uint64_t, TestStep>;

// Made once and kept; not thread-safe. From a seed of 1000 on all steps have the same state, from 2000 on there is a
// tensor more, from 3000 on both.
[[nodiscard]] const TestState& test_state(std::uint64_t step, std::uint64_t seed);

// What the store may show if it is looked at now, in whatever state the last call left it.
class Journal {
 public:
  using Change = std::function<TestRun(const TestRun&)>;
  using Changes = std::function<std::vector<TestRun>(const TestRun&)>;

  // Nothing, until something is saved.
  Journal() : runs_(1) {}
  explicit Journal(TestRun run) : runs_{std::move(run)} {}

  // Somebody opened the store and it shows these steps; false if they are not allowed. What it does not show may still
  // come back in a crash of the machine, of those runs that `may_come_back` says so.
  bool open(const std::vector<std::uint64_t>& steps, const std::function<bool(const TestRun&)>& may_come_back);

  // A call begins that may leave any of these, or change nothing.
  void begin(const Changes& possible);
  // It returned success: nothing else is right from now on, not even after a crash. `settles`: nothing else may come
  // back any more either.
  void confirm(const Change& change, bool settles);

  [[nodiscard]] std::vector<TestRun> allowed() const;
  // What is shown, where no call is under way.
  [[nodiscard]] const TestRun& run() const noexcept { return runs_.front(); }

 private:
  std::vector<TestRun> runs_;  // what is shown, and what may come back
  std::vector<TestRun> possible_;
};

// Those that a removal of all but `kept` may leave: it goes from the newest to the oldest.
[[nodiscard]] std::vector<TestRun> removals(const TestRun& run, const std::vector<std::uint64_t>& kept);

// What Store::save() and, with a place, Store::save_shard() do, with either destination. One thread encodes.
[[nodiscard]] Result<void> save_to(Destination destination, Store& store, std::uint64_t step,
                                   const std::optional<ShardPlace>& place, const TestState& state);

// The calls of a Store, journalled. Errors of the store come through; `journal` then still allows both.
[[nodiscard]] Result<void> save_step(Store& store, Journal& journal, std::uint64_t step, std::uint64_t seed = 0,
                                     Destination destination = Destination::disk);
[[nodiscard]] Result<void> prune_steps(Store& store, Journal& journal, const Retention& retention,
                                       Reencode reencode = Reencode::never);
[[nodiscard]] Result<void> roll_back(Store& store, Journal& journal, std::uint64_t step);
// Both shards of a step, by two handles, and the commit.
[[nodiscard]] Result<void> save_two_shards(Store& first, Store& second, Journal& journal, std::uint64_t step,
                                           std::uint64_t seed = 0, const std::string& attempt = "a1",
                                           Destination destination = Destination::disk);

// What of the run is there to be seen; empty where there is no store.
[[nodiscard]] Result<std::vector<std::uint64_t>> shown_steps(os::FileSystem& files);

// Empty if a reader sees one of the allowed runs, whole; else what it saw. `found`: which.
[[nodiscard]] std::string check_shown(os::FileSystem& files, const std::vector<TestRun>& allowed,
                                      TestRun* found = nullptr);

// Empty if nothing stands in the store that no record names, but for what a repair has set aside.
[[nodiscard]] std::string check_files(os::FakeFileSystem& files);

// The same for two file systems only if a store is the same in both but for the times and random names in it.
[[nodiscard]] std::uint64_t fingerprint(os::FakeFileSystem& files);

// All laws of a store that nobody has open: it shows what is allowed; verification finds nothing; the next save works,
// is coded against the newest and survives a crash together with all that was shown; a prune leaves no strays. Changes
// the store. `options`: of the handle that saves. Empty if they hold.
[[nodiscard]] std::string broken_law(os::FakeFileSystem& files, const std::vector<TestRun>& allowed,
                                     const StoreOptions& options = {});

}  // namespace bitsnap::store
