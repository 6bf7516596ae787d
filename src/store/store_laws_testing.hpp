// The laws of a store: what must hold after any crash or failure. A Journal notes what the store may show at each
// moment. The checks compare this with what a reader sees, and then save, prune and crash again.
//
// All functions use one store at /run of a file system in memory, with one thread, so that the same calls make the same
// file operations in the same order.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/store.hpp>

#include "os/file_system_fake.hpp"
#include "store/pending_save.hpp"
#include "store/run_testing.hpp"

namespace bitsnap::store {

inline constexpr const char* kTestRun = "/run";
inline const RunOptions kOneThread{1, nullptr};

// The shards of a step with this seed are equal.
inline constexpr std::uint64_t kReplicaSeed = 9;

// The content of one saved step.
struct TestStep {
  std::uint64_t seed = 0;
  std::uint32_t shards = 1;
  std::set<std::string> labels = {};
  std::map<std::string, std::vector<std::byte>> files = {};
  // The shard and name of each tensor that cannot be read; without a name, the shard cannot be opened.
  std::set<std::pair<std::uint32_t, std::string>> damaged = {};

  [[nodiscard]] std::uint64_t shard_seed(std::uint32_t shard) const noexcept {
    return seed * 100 + (seed == kReplicaSeed ? 0 : shard);
  }
  friend auto operator<=>(const TestStep&, const TestStep&) = default;
};
using TestRun = std::map<std::uint64_t, TestStep>;

// Makes each state once and keeps it; not thread-safe. Seeds from 1000: all steps have the same state. Seeds from 2000:
// one more tensor. Seeds from 3000: both.
[[nodiscard]] const TestState& test_state(std::uint64_t step, std::uint64_t seed);

// What the store may show now, however the last call ended.
class Journal {
 public:
  using Change = std::function<TestRun(const TestRun&)>;
  using Changes = std::function<std::vector<TestRun>(const TestRun&)>;

  // An empty run.
  Journal() : runs_(1) {}
  explicit Journal(TestRun run) : runs_{std::move(run)} {}

  // Notes that the store was opened and shows these steps and labels. Returns false if no allowed run has them. Of
  // several runs that have them, `has_content` finds the one that is shown. After a crash of the machine, the other
  // allowed runs for which `may_come_back` is true may still come back.
  bool open(const TestRun& shown, const std::function<bool(const TestRun&)>& has_content,
            const std::function<bool(const TestRun&)>& may_come_back);

  // Notes that a call begins, which may leave any run of `possible`, or change nothing.
  void begin(const Changes& possible);
  // Notes that the call succeeded: `change` applies to the shown run, and to every run that may come back. `settles`:
  // no other run can come back any more.
  void confirm(const Change& change, bool settles);

  [[nodiscard]] std::vector<TestRun> allowed() const;
  // The shown run, if no call is running.
  [[nodiscard]] const TestRun& run() const noexcept { return runs_.front(); }

 private:
  std::vector<TestRun> runs_;  // the shown run, then those that may come back
  std::vector<TestRun> possible_;
};

// The runs that an interrupted removal of all steps but `kept` may leave: removal goes from the newest to the oldest,
// but each step goes after those that are coded against it. The last run is that after the removal.
[[nodiscard]] std::vector<TestRun> removals(const TestRun& run, const std::vector<std::uint64_t>& kept);

// Does what Store::save() does or, with a place, Store::save_shard(), with either destination. One thread encodes.
[[nodiscard]] Result<void> save_to(Destination destination, Store& store, std::uint64_t step,
                                   const std::optional<ShardPlace>& place, const TestState& state,
                                   const CommitOptions& commit = {});

// The calls of a Store, noted in `journal`. They return the errors of the store; `journal` then allows the runs before
// and after.
[[nodiscard]] Result<void> save_step(Store& store, Journal& journal, std::uint64_t step, std::uint64_t seed = 0,
                                     Destination destination = Destination::disk, const CommitOptions& commit = {});
[[nodiscard]] Result<void> label_step(Store& store, Journal& journal, std::uint64_t step, const std::string& label);
[[nodiscard]] Result<void> remove_label(Store& store, Journal& journal, const std::string& label);
[[nodiscard]] Result<void> prune_steps(Store& store, Journal& journal, const Retention& retention,
                                       Reencode reencode = Reencode::never);
// Removes the steps by name.
[[nodiscard]] Result<void> remove_named(Store& store, Journal& journal, const std::vector<std::uint64_t>& steps,
                                        Reencode reencode = Reencode::never);
[[nodiscard]] Result<void> roll_back(Store& store, Journal& journal, std::uint64_t step);
// Saves both shards of a step with two handles, and commits.
[[nodiscard]] Result<void> save_two_shards(Store& first, Store& second, Journal& journal, std::uint64_t step,
                                           std::uint64_t seed = 0, const std::string& attempt = "a1",
                                           Destination destination = Destination::disk,
                                           const CommitOptions& commit = {});

// Returns an empty string if the store shows this content of a step, and exactly its damaged tensors cannot be read.
[[nodiscard]] std::string check_step_content(const Store& store, std::uint64_t step, const TestStep& content);
// Whether the store shows these contents.
[[nodiscard]] std::function<bool(const TestRun&)> content_of(const Store& store);
// The steps and labels that the store shows; contents are not read.
[[nodiscard]] Result<TestRun> shown_run(const Store& store);
// The steps that a reader sees; empty if there is no store.
[[nodiscard]] Result<std::vector<std::uint64_t>> shown_steps(os::FileSystem& files);

// Returns an empty string if a reader sees one of the allowed runs completely, otherwise what the reader sees. Sets
// `found` to the run.
[[nodiscard]] std::string check_shown(os::FileSystem& files, const std::vector<TestRun>& allowed,
                                      TestRun* found = nullptr);

// Returns an empty string if a record names each file of the store, except what a repair has set aside.
[[nodiscard]] std::string check_files(os::FakeFileSystem& files);

// Nobody syncs a tensor index, and its readers take only a whole one. A crash may leave anything of each: `ignored`
// tells a whole one from all others, and no more, because there would be twice as many disks.
enum class TensorIndexes : std::uint8_t { compared, ignored };

// A hash of the disk, what programs see and what is synced, without the times and random names of the store. Disks with
// equal hashes fulfil the same laws.
[[nodiscard]] std::uint64_t fingerprint(const os::FakeFileSystem& files,
                                        TensorIndexes indexes = TensorIndexes::compared);

// Checks all laws of a store that nobody has open: the store shows an allowed run; verification finds no damage; the
// next save works, has the newest checkpoint as its base, and survives a crash together with everything that was shown;
// a prune leaves no strays. Changes the store. `options` are those of the saving handle. Returns an empty string if all
// laws hold.
[[nodiscard]] std::string broken_law(os::FakeFileSystem& files, const std::vector<TestRun>& allowed,
                                     const StoreOptions& options = {});

}  // namespace bitsnap::store
