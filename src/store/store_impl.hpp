// Store::Impl: the state of a store handle: the directory of the run, the lock, and what a writing handle knows of the
// checkpoints.
//
// It makes the calls of Store of its parts: the directories of the steps, what a writing handle knows of the steps, the
// labels, the tensors, and the cache of bases. Sources: store.cpp, store_open.cpp, store_settle.cpp, store_read.cpp,
// store_save.cpp, store_encode.cpp, store_commit.cpp, store_replica.cpp, store_prune.cpp, store_rewrite.cpp,
// store_rollback.cpp, store_branch.cpp, store_verify.cpp, store_repair.cpp, store_repair_records.cpp. Any thread may
// call a handle. Reading calls use nothing that writing calls change. Writing calls hold the write turn.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/store.hpp>

#include "os/file_system.hpp"
#include "save/base_finder.hpp"
#include "save/snapshot_writer.hpp"
#include "store/base_cache.hpp"
#include "store/checkpoint_files.hpp"
#include "store/checkpoint_reader.hpp"
#include "store/commit_record.hpp"
#include "store/kept_bases.hpp"
#include "store/known_steps.hpp"
#include "store/labels.hpp"
#include "store/pending_save.hpp"
#include "store/retention_plan.hpp"
#include "store/run_layout.hpp"
#include "store/step_directories.hpp"
#include "store/tensor_reader.hpp"
#include "store/watched_base.hpp"
#include "store/write_turn.hpp"

namespace bitsnap {
class Store::Impl {
 public:
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] static Result<std::unique_ptr<Impl>> open(os::FileSystem& file_system, const std::string& path,
                                                          const StoreOptions& options,
                                                          std::shared_ptr<store::BaseCache> cache = nullptr);

  [[nodiscard]] static Impl& of(Store& store) noexcept { return *store.impl_; }

  [[nodiscard]] const std::string& path() const noexcept { return layout_.root(); }
  [[nodiscard]] const store::RunRecord& run() const noexcept { return run_; }
  [[nodiscard]] const store::BaseCache& cache() const noexcept { return *cache_; }
  [[nodiscard]] const CodingSettings& settings() const noexcept { return settings_; }
  [[nodiscard]] const store::StepDirectories& directories() const noexcept { return directories_; }
  [[nodiscard]] const store::Labels& labels() const noexcept { return labels_; }
  [[nodiscard]] const store::TensorReader& tensors() const noexcept { return tensors_; }

  // store_read.cpp
  [[nodiscard]] Result<std::vector<Checkpoint>> checkpoints() const;
  [[nodiscard]] Result<Checkpoint> checkpoint(std::uint64_t step) const;
  // The newest checkpoint on disk that is not kept as damaged.
  [[nodiscard]] Result<std::optional<std::uint64_t>> newest_whole() const;
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> snapshot(std::optional<std::uint64_t> step, std::uint32_t shard,
                                                                 bool partial) const;
  [[nodiscard]] Result<std::vector<CheckpointFile>> files(std::uint64_t step) const;
  // store_save.cpp. A save is three calls, each of which may run on another thread. An error in one of them ends the
  // save and removes what the save has written.
  // Takes the lock and chooses the base. `place` is given if there are several ranks, and `like` if another one of them
  // has chosen before: this one chooses the same if their shards may be equal.
  [[nodiscard]] Result<store::PendingSave> begin(std::uint64_t step, const std::optional<ShardPlace>& place,
                                                 const store::Coding* like = nullptr, bool replace = false);
  // Encodes the snapshot file; as a keyframe if the base turns out to be damaged.
  [[nodiscard]] Result<void> encode(store::PendingSave& save, const State& state, const RunOptions& options,
                                    store::Destination destination);
  // The same for what another snapshot holds, on disk and as a keyframe. Nothing is quantized again, and the id stays.
  [[nodiscard]] Result<void> encode(store::PendingSave& save, const Snapshot& source, const RunOptions& options);
  // Writes the file, if it is in memory, and then the commit record or shard record. Everything is durable when it
  // returns.
  [[nodiscard]] Result<void> publish(store::PendingSave& save);
  // begin(), encode(), `check` if there is one, and publish().
  [[nodiscard]] Result<store::PendingSave> save(std::uint64_t step, const std::optional<ShardPlace>& place,
                                                const State& state, const RunOptions& options,
                                                const SaveCheck& check = nullptr, const CommitOptions& commit = {});
  // store_commit.cpp
  [[nodiscard]] Result<CommitOutcome> commit(std::uint64_t step, std::uint32_t shards, const std::string& attempt,
                                             const CommitOptions& options = {});
  [[nodiscard]] Result<void> label(std::uint64_t step, const std::vector<std::string>& labels);
  [[nodiscard]] Result<void> unlabel(const std::string& label);
  // store_prune.cpp
  // Prunes with the handle's retention after a commit, and notes the result in `info`.
  void apply_retention(Checkpoint& info, const RunOptions& options);
  [[nodiscard]] Result<RunUsage> usage();
  // `just_saved`: the step that this handle has just written, if any.
  [[nodiscard]] Result<PruneReport> prune(const Retention& retention, const PruneOptions& options,
                                          std::optional<std::uint64_t> just_saved = std::nullopt);
  [[nodiscard]] Result<PruneReport> remove(std::vector<std::uint64_t> steps, const PruneOptions& options);
  [[nodiscard]] Result<RollbackReport> rollback(std::uint64_t step, const RunOptions& options);
  // store_branch.cpp
  [[nodiscard]] Result<Branch> make_branch(const std::string& name, std::uint64_t step,
                                           const BranchOptions& options) const;
  [[nodiscard]] Result<std::vector<Branch>> branches() const;
  [[nodiscard]] Result<void> remove_branch(const std::string& name) const;
  // store_verify.cpp
  [[nodiscard]] Result<StoreVerification> verify(const StoreVerifyOptions& options) const;
  // store_repair.cpp
  [[nodiscard]] static Result<RepairReport> repair(os::FileSystem& file_system, const std::string& path,
                                                   const RepairOptions& options);

 private:
  // Each does one call and owns the data of that call.
  class Pruner;    // store_prune.cpp
  class Rewriter;  // store_rewrite.cpp
  class Repairer;  // store_repair.cpp
  class Brancher;  // store_branch.cpp

  Impl(os::FileSystem& file_system, const std::string& path, const StoreOptions& options,
       std::shared_ptr<store::BaseCache> cache);

  // store_open.cpp
  Result<void> create_run();
  Result<bool> has_checkpoints() const;
  // Removes an empty store that only a mistaken name has made.
  void withdraw() const;
  // invalid_argument if the directory is a framework's folder, whose reference has the name of a run record.
  Result<void> check_is_no_reference() const;
  Result<store::WriteGuard> begin_writing(os::LockKind kind);
  // `is_alone`: nobody else writes, so no other rank works on an uncommitted step above the newest.
  Result<std::vector<std::string>> remove_strays(bool dry_run, bool is_alone);
  // The retired steps that the checkpoint needs, ascending.
  [[nodiscard]] std::vector<PruneReport::Needed> pruned_below(const store::CommitRecord& record) const;

  // store_settle.cpp
  Result<void> settle();
  Result<void> settle_again();
  void lose_sight() noexcept { is_settled_ = false; }
  Result<bool> is_spared_when_uncommitted(std::uint64_t step);

  // store_save.cpp
  Result<void> begin_replacing(std::uint64_t step, const std::optional<ShardPlace>& place);
  [[nodiscard]] store::CommitHeader header_of(const store::PendingSave& save) const;
  Result<void> write_blob(const store::PendingSave& save);
  Result<void> write_shard_record(const store::PendingSave& save);
  // Removes the files that an unfinished save has written.
  void take_back(const store::PendingSave& save);

  // store_replica.cpp
  // Some other shards of the attempt that are published, those first that are most likely equal; none if there are
  // none.
  [[nodiscard]] Result<std::vector<std::uint32_t>> published_shards(const store::PendingSave& save);
  // Uses the file of one of these shards, if it is equal, instead of the file that would be written, or was.
  Result<void> link_replica(store::PendingSave& save, const std::vector<std::uint32_t>& published);
  // Gives the step's file `other` a second name `name`, which is free, if it equals `file`. Otherwise, or if the file
  // system refuses, returns false.
  [[nodiscard]] bool link_if_equal(std::uint64_t step, const os::RandomAccessFile& file, const std::string& other,
                                   const std::string& name);

  // store_encode.cpp
  // `newest` is the newest checkpoint beside the one that is to be saved.
  [[nodiscard]] store::Coding choose_coding(std::optional<std::uint64_t> newest);
  [[nodiscard]] bool has_retention() const noexcept;
  // What the retention lets the next checkpoint be coded against, if `newest` is the one before it.
  [[nodiscard]] Result<store::Coding> choose_retained_coding(std::uint64_t newest);
  // Whether to code against the same checkpoint as another rank of the attempt: if it is still there, and if this shard
  // may be equal to others, because it was in the newest checkpoint or there is none.
  [[nodiscard]] bool should_code_like(const store::Coding& other, const ShardPlace& place);
  // Whether the next save is coded against this one.
  [[nodiscard]] bool is_next_base(const store::PendingSave& save) const;
  // Makes the base read its chunks from memory if they are there. Its file is not read then, so this compares all its
  // payloads with their hashes, without decoding them, and returns an error if one is damaged, unless `is_new`.
  [[nodiscard]] Result<void> read_base_from_memory(const Snapshot& base, unsigned threads, bool is_new = false) const;
  [[nodiscard]] std::unique_ptr<save::BaseFinder> find_bases(const store::PendingSave& save,
                                                             store::CheckpointReader& reader,
                                                             const std::shared_ptr<store::BaseWatch>& watch,
                                                             unsigned threads);
  // Writes the content of a save.
  using Write = std::function<Result<save::WriteSummary>(const SaveOptions& coding, save::BaseFinder* bases,
                                                         os::WritableFile& file, exec::Executor& executor)>;
  // Afterwards, `watch` tells whether the base has failed.
  Result<void> encode_file(store::PendingSave& save, const Write& write, const RunOptions& options,
                           store::Destination destination, const std::shared_ptr<store::BaseWatch>& watch);
  Result<void> encode_or_keyframe(store::PendingSave& save, const Write& write, const RunOptions& options,
                                  store::Destination destination);

  // store_commit.cpp
  Result<Checkpoint> commit_record(const store::CommitRecord& record);
  // Replaces the record of a checkpoint by that of another attempt, and removes the files of the old one.
  Result<Checkpoint> replace_record(const store::CommitRecord& record);
  // If the commit fails, the caller's files are strays.
  void note_stray_files(const CommitOptions& options) {
    if (!options.files.empty() || !options.metadata.empty()) strays_removed_ = false;
  }
  void remove_leftovers(const store::CommitRecord& record);
  Checkpoint note_committed(const store::CommitRecord& record);
  void give_up(std::uint64_t step, bool record_is_own);
  void update_catalog();
  void write_tensors(const store::CommitRecord& record);
  // KnownSteps::check_new(), with an error that tells a late caller what became of the step.
  Result<void> check_not_too_late(std::uint64_t step, const std::string& attempt);
  // The missing shards of an attempt, judged by file names. The shard `first` is the first that is missing.
  Result<std::vector<std::uint32_t>> missing_shards(std::uint64_t step, std::uint32_t shards,
                                                    const std::string& attempt, std::uint32_t first) const;

  // Commits the shards of an attempt. Returns nullopt if the commit needs the exclusive lock and `is_alone` is false.
  Result<std::optional<CommitOutcome>> commit_shards(std::uint64_t step, std::uint32_t shards,
                                                     const std::string& attempt, const CommitOptions& options,
                                                     bool is_alone);
  // The checkpoint, if this attempt has committed the step. If another one has, nullopt if that is to be replaced, and
  // otherwise invalid_argument.
  Result<std::optional<Checkpoint>> committed_already(std::uint64_t step, const std::string& attempt, bool is_replaced);
  [[nodiscard]] Result<bool> check_shard_file(const store::ShardRecord& part, const std::string& record_path) const;

  // store_prune.cpp
  Result<store::WriteGuard> begin_pruning(const PruneOptions& options);
  Result<void> remove_step(std::uint64_t step);
  Result<void> retire_step(std::uint64_t step);

  // store_rewrite.cpp
  // Rewrites the steps of `onto` against later ones, and those files of the steps `whole` that refer to a step of
  // `dropped`. `just_saved`: a step whose files need not be searched for damage.
  Result<void> rewrite_all(const std::set<std::uint64_t>& dropped, const std::vector<std::uint64_t>& whole,
                           const std::map<std::uint64_t, std::uint64_t>& onto, const RunOptions& options,
                           std::vector<PruneReport::Rewritten>& rewritten,
                           std::optional<std::uint64_t> just_saved = std::nullopt);

  // Rewrites the checkpoints, and the retired ones that are whole, that refer to one of the steps `dropped`.
  // invalid_argument if the rest of a checkpoint that is kept as damaged needs one of them.
  Result<void> detach(const std::set<std::uint64_t>& dropped, const RunOptions& options);
  // invalid_argument if a checkpoint that is kept as damaged leads to one of the `stuck` steps.
  Result<void> check_not_stuck(const std::set<std::uint64_t>& stuck, const std::set<std::uint64_t>& dropped);

  // store_verify.cpp. `records` are in order of steps. Returns an error only if verification could not continue.
  Result<std::vector<StoreDamage>> verify_records(store::CheckpointReader& reader,
                                                  std::span<const store::CommitRecord* const> records, bool decode,
                                                  const RunOptions& options) const;
  [[nodiscard]] Result<bool> verify_again(store::CheckpointReader& reader, store::CommitRecord record, bool is_retired,
                                          const StoreVerifyOptions& options, std::vector<StoreDamage>& damages) const;

  const store::RunLayout layout_;
  os::FileSystem& all_files_;  // that the handle was opened with
  const std::shared_ptr<os::FileSystem> own_files_;
  os::FileSystem& file_system_;  // own_files_: follows no links in the store
  const StoreOptions options_;
  store::RunRecord run_;
  CodingSettings settings_;  // of options_, then of run_
  const std::shared_ptr<store::CheckpointReader> reader_;

  store::WriteTurn turn_;
  store::StepDirectories directories_;
  store::TensorReader tensors_;
  store::Labels labels_;
  store::KnownSteps known_;
  std::unique_ptr<os::FileLock> lock_;
  std::uint64_t lock_file_id_ = 0;  // of the locked file
  bool strays_removed_ = false;
  std::size_t catalog_missing_ = 0;  // checkpoints committed since the catalog was written
  std::size_t published_ = 0;        // saves of this handle
  // False after a change of a step has failed: then nobody knows whether the step is there, and whether it would be
  // after a crash. The next writing call finds out as opening does.
  bool is_new_ = false;                           // whether this handle has made the store
  mutable std::atomic<bool> was_missed_ = false;  // whether a checkpoint was asked for that a new store cannot have
  bool is_settled_ = true;
  std::optional<Error> broken_;              // the failure after which the handle is unusable
  std::shared_ptr<store::BaseCache> cache_;  // of an agent, or the handle's own
  // Under which name the next handle of this process finds it; nullopt: it is not the handle's own.
  std::optional<store::RunKey> hands_base_over_as_;
};

namespace store {

// Store::open() on any file system. Published files that `cache` holds are noted in it, and bases are read from it.
[[nodiscard]] Result<std::unique_ptr<Store>> open_store(os::FileSystem& file_system, const std::string& path,
                                                        const StoreOptions& options,
                                                        std::shared_ptr<BaseCache> cache = nullptr);
[[nodiscard]] Result<RepairReport> repair_store(os::FileSystem& file_system, const std::string& path,
                                                const RepairOptions& options);

}  // namespace store
}  // namespace bitsnap
