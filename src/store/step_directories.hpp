// The directories of the steps of a store: listing them, and creating and removing them in the order that
// docs/spec/store.md ("Order of operations") prescribes. Every change of a store is here, except the writing of records
// and snapshot files.
//
// Functions that change the store are called by one thread at a time, which holds the lock; any thread may call the
// others.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>

#include "os/file_system.hpp"
#include "store/commit_record.hpp"
#include "store/run_layout.hpp"

namespace bitsnap::store {

enum class StepState : std::uint8_t {
  committed,    // a checkpoint
  retired,      // its files are kept for others
  uncommitted,  // neither: invisible, to be removed
  foreign,      // no directory; never listed
};

struct StepEntry {
  std::uint64_t step = 0;
  StepState state = StepState::uncommitted;
  os::FileInfo record;  // of commit.json or retired.json
};

struct NewestSteps {
  std::vector<StepEntry> entries;
  std::size_t all_steps = 0;  // how many directories there are
};

class StepDirectories {
 public:
  // `file_system` outlives this.
  StepDirectories(os::FileSystem& file_system, RunLayout layout)
      : file_system_(file_system), layout_(std::move(layout)) {}

  // All of them, by step.
  [[nodiscard]] Result<std::vector<StepEntry>> list() const;
  // The newest checkpoint and what is above it, by step; all, where there is no checkpoint. Asks for the names of all,
  // and for the records of these only.
  [[nodiscard]] Result<NewestSteps> list_newest() const;
  [[nodiscard]] Result<StepEntry> look(std::uint64_t step) const;
  // The same; nullopt where it has no directory.
  [[nodiscard]] Result<std::optional<StepEntry>> find(std::uint64_t step) const;

  // Makes the directory, or finds it there.
  [[nodiscard]] Result<void> create(std::uint64_t step);

  // Takes a checkpoint, retired or not, or what was never committed, away: first the record, durably, then all files of
  // ours. Files of others stay, and with them the directory.
  [[nodiscard]] Result<void> remove(std::uint64_t step);

  // commit.json -> retired.json, durably.
  [[nodiscard]] Result<void> retire(std::uint64_t step);

  // Moves the directory to damaged/, durably; the answer is where it is now, relative to the store.
  [[nodiscard]] Result<std::string> set_aside(std::uint64_t step);
  // Makes safe what a repair that was killed has moved. Before anything else syncs checkpoints/: what is gone from
  // there must not be lost with damaged/.
  [[nodiscard]] Result<void> settle_set_aside();

  // Names in the directory of a step that are ours and that its record does not name. `record`: nullptr where it cannot
  // be read; only temporaries are strays then.
  [[nodiscard]] Result<std::vector<std::string>> strays(std::uint64_t step, const CommitRecord* record) const;
  [[nodiscard]] Result<void> remove_file(std::uint64_t step, const std::string& name);

  // These do nothing where the file system cannot, which is noted.
  [[nodiscard]] Result<void> sync_step(std::uint64_t step) { return sync(layout_.step_directory(step)); }
  [[nodiscard]] Result<void> sync_checkpoints() { return sync(layout_.checkpoints()); }
  [[nodiscard]] Result<void> sync(const std::string& directory);

  // False once a sync of a directory was refused as unsupported.
  [[nodiscard]] bool is_durable() const noexcept { return durable_.load(std::memory_order_relaxed); }
  void note_sync(bool done) noexcept {
    if (!done) durable_.store(false, std::memory_order_relaxed);
  }

  [[nodiscard]] const RunLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] os::FileSystem& file_system() const noexcept { return file_system_; }

 private:
  [[nodiscard]] Result<std::vector<std::uint64_t>> list_names() const;
  // look(), but what is no directory is `foreign`.
  [[nodiscard]] Result<StepEntry> look_at(std::uint64_t step) const;

  os::FileSystem& file_system_;
  RunLayout layout_;
  std::atomic<bool> durable_ = true;
};

}  // namespace bitsnap::store
