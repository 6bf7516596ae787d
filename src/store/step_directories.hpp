// StepDirectories: lists, creates, retires and removes the directories of a store's steps, in the order that
// docs/spec/store.md ("Order of operations") prescribes. Every change of a store is made here, except the writing of
// records and snapshot files.
//
// One thread at a time, which holds the lock, calls the functions that change the store. Any thread may call the
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
  retired,      // its files are kept for other checkpoints
  uncommitted,  // neither: readers do not see it, and it is removed
};

struct StepEntry {
  std::uint64_t step = 0;
  StepState state = StepState::uncommitted;
  os::FileInfo record;  // of commit.json or retired.json
};

struct NewestSteps {
  std::vector<StepEntry> entries;
  std::size_t all_steps = 0;  // number of directories
};

class StepDirectories {
 public:
  // `file_system` must outlive this object.
  StepDirectories(os::FileSystem& file_system, RunLayout layout)
      : file_system_(file_system), layout_(std::move(layout)) {}

  // All steps, in ascending order.
  [[nodiscard]] Result<std::vector<StepEntry>> list() const;
  // The same for readers. A writer may save a new checkpoint and remove the newest one while list() looks at the names
  // that it has listed: if it finds no checkpoint, this function lists them again.
  [[nodiscard]] Result<std::vector<StepEntry>> list_again() const;
  // The checkpoints, ascending.
  [[nodiscard]] Result<std::vector<std::uint64_t>> steps() const;
  // Names the checkpoints nearby.
  [[nodiscard]] Error not_found(std::uint64_t step) const;
  // The newest checkpoint and the steps above it, in ascending order; all steps if there is no checkpoint. Lists the
  // names of all steps, but looks only at the records of these.
  [[nodiscard]] Result<NewestSteps> list_newest() const;
  [[nodiscard]] Result<StepEntry> look(std::uint64_t step) const;
  // Like look(), but returns nullopt if the step has no directory.
  [[nodiscard]] Result<std::optional<StepEntry>> find(std::uint64_t step) const;

  // Creates the directory unless it exists.
  [[nodiscard]] Result<void> create(std::uint64_t step);

  // Removes a committed, retired or uncommitted step: first its record, durably, then all files of bitsnap. If the
  // directory holds other files, they stay, and so does the directory.
  [[nodiscard]] Result<void> remove(std::uint64_t step);

  // What remove() removes of a step without a record, relative to the store: its directory, or bitsnap's files in it if
  // others are there, too.
  [[nodiscard]] Result<std::vector<std::string>> removable(std::uint64_t step) const;

  // commit.json -> retired.json, durably.
  [[nodiscard]] Result<void> retire(std::uint64_t step);

  // Moves the directory to damaged/, durably. Returns its new path, relative to the store.
  [[nodiscard]] Result<std::string> set_aside(std::uint64_t step);
  // Syncs the moves of a repair that was killed. Must run before anything else syncs checkpoints/: otherwise a crash
  // could lose the entry in damaged/ after the entry in checkpoints/ is gone.
  [[nodiscard]] Result<void> settle_set_aside();

  // Names of bitsnap's files in a step's directory that its record does not name. If the record cannot be read,
  // `record` is nullptr, and only temporary files are strays.
  [[nodiscard]] Result<std::vector<std::string>> strays(std::uint64_t step, const CommitRecord* record) const;
  [[nodiscard]] Result<void> remove_file(std::uint64_t step, const std::string& name);

  // The name, or the next one as a rewritten file that the step does not hold.
  [[nodiscard]] Result<std::string> free_file_name(std::uint64_t step, std::string name) const;

  // The records of shards that wait for their commit.
  [[nodiscard]] Result<std::vector<ShardRecord>> pending_shards(std::uint64_t step) const;
  // The records of shards that wait to replace the checkpoint that has this record.
  [[nodiscard]] Result<std::vector<ShardRecord>> waiting_replacements(std::uint64_t step,
                                                                      const CommitRecord& record) const;
  // Takes these records and their files out of `strays`, files of the step that its record does not name.
  [[nodiscard]] Result<void> spare_waiting(std::uint64_t step, const CommitRecord& record,
                                           std::vector<std::string>& strays) const;

  // These do nothing if the file system cannot sync directories, and is_durable() reports it.
  [[nodiscard]] Result<void> sync_step(std::uint64_t step) { return sync(layout_.step_directory(step)); }
  [[nodiscard]] Result<void> sync_checkpoints() { return sync(layout_.checkpoints()); }
  [[nodiscard]] Result<void> sync(const std::string& directory);

  // False once the file system has refused to sync a directory.
  [[nodiscard]] bool is_durable() const noexcept { return durable_.load(std::memory_order_relaxed); }
  void note_sync(bool done) noexcept {
    if (!done) durable_.store(false, std::memory_order_relaxed);
  }

  [[nodiscard]] const RunLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] os::FileSystem& file_system() const noexcept { return file_system_; }

 private:
  [[nodiscard]] Result<std::vector<std::uint64_t>> list_names() const;
  // Like look(), but returns nullopt if the path is not a directory.
  [[nodiscard]] Result<std::optional<StepEntry>> look_at(std::uint64_t step) const;

  os::FileSystem& file_system_;
  RunLayout layout_;
  std::atomic<bool> durable_ = true;
};

}  // namespace bitsnap::store
