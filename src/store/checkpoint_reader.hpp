// Opens the snapshots of a store with all that they refer to, so that whatever is pruned later, what is open can be
// read.
//
// References lead to smaller steps only, so what is open forms no circle: each snapshot owns those it refers to, and
// the reader remembers them weakly, to open no file twice. Thread-safe. `file_system` outlives all that is opened.
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

#include "os/file_system.hpp"
#include "store/base_cache.hpp"
#include "store/commit_record.hpp"
#include "store/run_layout.hpp"

namespace bitsnap::store {

class CheckpointReader {
 public:
  // `cache`, which outlives the reader, has files in memory; may be nullptr.
  CheckpointReader(os::FileSystem& file_system, RunLayout layout, const DecodeLimits& limits,
                   const BaseCache* cache = nullptr)
      : file_system_(file_system), layout_(std::move(layout)), limits_(limits), cache_(cache) {}

  // The record of a step, retired or not; not_found if it has neither.
  [[nodiscard]] Result<CommitRecord> record(std::uint64_t step) const;

  // One shard of a checkpoint that exists. If its record changes meanwhile it is read again. not_found where the
  // checkpoint is not there (any more) or has no such shard; corrupt, naming the file, where something that the record
  // promises is missing or another.
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> open(std::uint64_t step, std::uint32_t shard);

  // A file that a record names, whatever has become of the checkpoint, with what it refers to.
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> open_file(std::uint64_t step, const ShardFile& file) {
    return open_with(step, file, false, 0);
  }
  // The same, read from `opened`, which need not be on the disk yet.
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> open_as(std::uint64_t step, const ShardFile& file,
                                                                std::unique_ptr<os::RandomAccessFile> opened) {
    return open_with(step, file, false, 0, std::move(opened));
  }
  // The same without what it refers to: chunks that need something else cannot be read.
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> open_alone(std::uint64_t step, const ShardFile& file) {
    return open_with(step, file, true, 0);
  }

  // From now on `record` is what this reader finds for its step, whatever stands in the store: for trying out a repair.
  // Not while other threads use the reader.
  void assume(CommitRecord record);

  // Where a snapshot of this store stands, from the path that it was opened by.
  struct Place {
    std::uint64_t step = 0;
    std::uint32_t shard = 0;
  };
  // corrupt if what stands there by now is another one.
  [[nodiscard]] Result<Place> place_of(const std::string& path, const SnapshotId& id) const;

  // Whether everything that a file refers to is recorded, as far as it needs it; opens no snapshot.
  [[nodiscard]] Result<void> check_references(std::uint64_t step, const ShardFile& file) const;

 private:
  Result<std::shared_ptr<const Snapshot>> open_with(std::uint64_t step, const ShardFile& file, bool alone,
                                                    std::uint32_t nesting,
                                                    std::unique_ptr<os::RandomAccessFile> opened = nullptr);
  Result<std::shared_ptr<const BaseProvider>> open_references(std::uint64_t step, const ShardFile& file,
                                                              std::uint32_t nesting);
  void remember(const std::string& path, bool alone, const std::shared_ptr<const Snapshot>& snapshot);

  os::FileSystem& file_system_;
  const RunLayout layout_;
  const DecodeLimits limits_;
  const BaseCache* const cache_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, bool>, std::weak_ptr<const Snapshot>> opened_;  // by path, and whether alone
  std::map<std::uint64_t, CommitRecord> assumed_;
  std::size_t sweep_at_ = 64;  // entries at which those that are gone are forgotten
};

}  // namespace bitsnap::store
