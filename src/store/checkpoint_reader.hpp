// CheckpointReader: opens the snapshots of a store with everything that they refer to. An open snapshot stays readable,
// whatever is pruned later.
//
// An open snapshot owns the snapshots that it refers to. A file that refers to itself through others is corrupt, so
// ownership forms no circle. The reader refers weakly to open snapshots, to open no file twice. Thread-safe, except
// assume().
// `file_system` must outlive the reader and everything that it opens.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/snapshot.hpp>

#include "base/function_ref.hpp"
#include "os/file_system.hpp"
#include "save/snapshot_writer.hpp"
#include "store/base_cache.hpp"
#include "store/commit_record.hpp"
#include "store/run_layout.hpp"

namespace bitsnap::store {

class CheckpointReader {
 public:
  // `cache` provides files from memory. It must outlive the reader, and may be nullptr. `pattern`: of all files.
  CheckpointReader(os::FileSystem& file_system, RunLayout layout, const DecodeLimits& limits,
                   const BaseCache* cache = nullptr, os::AccessPattern pattern = os::AccessPattern::random)
      : file_system_(file_system), layout_(std::move(layout)), limits_(limits), cache_(cache), pattern_(pattern) {}

  // The record of a step, committed or retired. Returns not_found if the step has neither.
  [[nodiscard]] Result<CommitRecord> record(std::uint64_t step) const;

  // Opens one shard of a committed checkpoint. If that fails, the reader looks at the commit record again, and starts
  // again if it has changed. Returns not_found if the checkpoint is not there (any more) or has no such shard. Returns
  // corrupt or truncated, naming the file, if the record stays the same, and a file that it names is missing or has
  // other content. Returns busy if the record keeps changing.
  // `partial`: opens a shard also if a file that it refers to cannot be opened. Reading a chunk that needs that file
  // then fails, and all others can be read.
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> open(std::uint64_t step, std::uint32_t shard,
                                                             bool partial = false);

  // Likewise opens the file with the caller's files of a committed checkpoint. Returns nullptr if there is none.
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> open_files(std::uint64_t step);

  // Opens a file that a record names, with everything that the file refers to, even if the checkpoint is retired or
  // gone. `alone`: opens no references, so chunks that need another snapshot cannot be read. Reads the file from
  // `opened`, if given, which need not be on disk yet.
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> open_file(
      std::uint64_t step, const ShardFile& file, bool alone = false,
      std::unique_ptr<os::RandomAccessFile> opened = nullptr) {
    return open_with(step, file, alone ? Extent::alone : Extent::whole, nullptr, std::move(opened));
  }
  // Opens a file without those of its references that cannot be opened, as open() does with `partial`.
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> open_partially(std::uint64_t step, const ShardFile& file) {
    return open_with(step, file, Extent::partial, nullptr, nullptr);
  }

  // Makes this reader use `record` for its step instead of the record on disk, to try out a repair. No other thread may
  // use the reader meanwhile.
  void assume(CommitRecord record);

  // Finds the place of a snapshot from the path by which it was opened, `used.name`. Returns corrupt if the record now
  // names another snapshot there.
  [[nodiscard]] Result<StepReference> reference_to(const save::Reference& used) const;

  // Checks that the records name every snapshot that the file needs. Opens no snapshot.
  [[nodiscard]] Result<void> check_references(std::uint64_t step, const ShardFile& file) const;

 private:
  // The file of a record that is wanted; nullptr: the record has no such file.
  using Pick = FunctionRef<const ShardFile*(const CommitRecord&)>;
  // open() for the picked file. Returns nullptr if the record has no such file.
  Result<std::shared_ptr<const Snapshot>> open_picked(std::uint64_t step, Pick pick, bool partial = false);
  // What is opened with a file: all that it refers to, nothing, or what can be opened.
  enum class Extent : std::uint8_t { whole, alone, partial };
  // A file that is being opened, and the file that needs it.
  struct Opening {
    std::uint64_t step = 0;
    const ShardFile& file;
    const Opening* outer = nullptr;
  };
  Result<std::shared_ptr<const Snapshot>> open_with(std::uint64_t step, const ShardFile& file, Extent extent,
                                                    const Opening* outer, std::unique_ptr<os::RandomAccessFile> opened);
  Result<std::shared_ptr<const BaseProvider>> open_references(const Opening& opening, Extent extent);
  void remember(const std::string& path, Extent extent, const std::shared_ptr<const Snapshot>& snapshot);

  os::FileSystem& file_system_;
  const RunLayout layout_;
  const DecodeLimits limits_;
  const BaseCache* const cache_;
  const os::AccessPattern pattern_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, Extent>, std::weak_ptr<const Snapshot>> opened_;  // by path
  std::map<std::uint64_t, CommitRecord> assumed_;
  std::size_t sweep_at_ = 64;  // number of entries at which expired ones are removed
};

}  // namespace bitsnap::store
