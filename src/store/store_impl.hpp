// Store::Impl: the state of a store handle: the directory of the run, the lock, and what a writing handle knows of the
// checkpoints.
//
// The parts: store.cpp, store_open.cpp, store_settle.cpp, store_read.cpp, store_tensors.cpp, store_save.cpp,
// store_encode.cpp, store_commit.cpp, store_files.cpp, store_replica.cpp, store_labels.cpp, store_prune.cpp,
// store_rewrite.cpp, store_rollback.cpp, store_verify.cpp, store_repair.cpp, store_repair_records.cpp. Any thread may
// call a handle. Reading calls use nothing that writing calls change. Writing calls hold the write turn.
#pragma once

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
#include "store/checkpoint_reader.hpp"
#include "store/commit_record.hpp"
#include "store/kept_bases.hpp"
#include "store/label_record.hpp"
#include "store/pending_save.hpp"
#include "store/retention_plan.hpp"
#include "store/run_layout.hpp"
#include "store/step_directories.hpp"
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
  [[nodiscard]] bool is_durable() const noexcept { return directories_.is_durable(); }

  // store_read.cpp
  [[nodiscard]] Result<std::vector<std::uint64_t>> steps() const;
  [[nodiscard]] Result<std::vector<store::StepEntry>> list_entries() const;
  [[nodiscard]] Result<std::vector<CheckpointInfo>> list() const;
  [[nodiscard]] Result<CheckpointInfo> info(std::uint64_t step) const;
  // The newest checkpoint on disk that is not kept as damaged.
  [[nodiscard]] Result<std::optional<std::uint64_t>> newest_whole() const;
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> snapshot(std::optional<std::uint64_t> step, std::uint32_t shard,
                                                                 bool partial) const;
  // store_tensors.cpp
  using Tensors = std::shared_ptr<const std::vector<GlobalTensor>>;
  [[nodiscard]] Result<Tensors> tensors(std::uint64_t step) const;
  [[nodiscard]] Result<void> read_boxes(std::uint64_t step, std::span<const TensorBox> boxes,
                                        const RunOptions& options) const;
  // store_files.cpp
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
  // store_labels.cpp
  [[nodiscard]] Result<void> label(std::uint64_t step, const std::vector<std::string>& labels);
  [[nodiscard]] Result<void> unlabel(const std::string& label);
  [[nodiscard]] Result<std::uint64_t> find(const std::string& label) const;
  [[nodiscard]] Result<std::vector<StepLabel>> labels() const;
  // store_prune.cpp
  // Prunes with the handle's retention after a commit, and notes the result in `info`.
  void apply_retention(CheckpointInfo& info, const RunOptions& options);
  [[nodiscard]] Result<RunUsage> usage();
  // `just_saved`: the step that this handle has just written, if any.
  [[nodiscard]] Result<PruneReport> prune(const Retention& retention, const PruneOptions& options,
                                          std::optional<std::uint64_t> just_saved = std::nullopt);
  [[nodiscard]] Result<PruneReport> remove(std::vector<std::uint64_t> steps, const PruneOptions& options);
  [[nodiscard]] Result<RollbackReport> rollback(std::uint64_t step, const RunOptions& options);
  // store_verify.cpp
  [[nodiscard]] Result<StoreVerification> verify(const StoreVerifyOptions& options) const;
  // store_repair.cpp
  [[nodiscard]] static Result<RepairReport> repair(os::FileSystem& file_system, const std::string& path,
                                                   const RepairOptions& options);

 private:
  // A step as the writing handle knows it. Its record is read when it is first needed.
  struct Known {
    store::StepState state = store::StepState::uncommitted;
    std::uint64_t record_bytes = 0;
    std::shared_ptr<const Result<store::CommitRecord>> record;

    void set_record(store::CommitRecord written) {
      record_bytes = store::serialize_commit_record(written).size();
      record = std::make_shared<const Result<store::CommitRecord>>(std::move(written));
    }
  };
  // Which steps the writing handle knows. A handle that holds no lock between its calls starts each call with
  // `nothing`.
  enum class Sight : std::uint8_t {
    nothing,
    newest,  // the newest checkpoint, the steps above it, and the steps that were looked up
    all,
  };
  // What a caller assumes of a record that cannot be read.
  enum class UnreadableRecord : std::uint8_t { refers_to_nothing, may_refer_to_any };
  // Each does one call and owns the data of that call.
  class Pruner;    // store_prune.cpp
  class Rewriter;  // store_rewrite.cpp
  class Repairer;  // store_repair.cpp

  Impl(os::FileSystem& file_system, const std::string& path, const StoreOptions& options,
       std::shared_ptr<store::BaseCache> cache);

  // store_open.cpp
  Result<void> create_run();
  Result<bool> has_checkpoints() const;
  // invalid_argument if the directory is a framework's folder, whose reference has the name of a run record.
  Result<void> check_is_no_reference() const;
  Result<store::WriteGuard> begin_writing(os::LockKind kind);
  // Load all steps, or at least the newest checkpoint and the steps above it, unless they are known.
  Result<void> refresh_known();
  Result<void> refresh_newest();
  void know(const std::vector<store::StepEntry>& entries, Sight sight, std::size_t all_steps);
  // Looks for the step on disk if not all steps are known. Returns nullptr if the step does not exist.
  Result<Known*> find_known(std::uint64_t step);
  Result<void> check_new_step(std::uint64_t step);
  // Whether the step is a checkpoint that nothing with a record can need.
  [[nodiscard]] bool is_replaceable(std::uint64_t step) const;
  const Result<store::CommitRecord>& record_of(std::uint64_t step, Known& known);
  [[nodiscard]] std::optional<std::uint64_t> newest() const;
  // The newest known checkpoint before the step.
  [[nodiscard]] std::optional<std::uint64_t> newest_below(std::uint64_t step) const;
  // `is_alone`: nobody else writes, so no other rank works on an uncommitted step above the newest.
  Result<std::vector<std::string>> remove_strays(bool dry_run, bool is_alone);
  // The retired steps that the checkpoint needs, ascending.
  [[nodiscard]] std::vector<PruneReport::Needed> pruned_below(const store::CommitRecord& record) const;
  [[nodiscard]] Error step_not_found(std::uint64_t step) const;

  // store_tensors.cpp. From the tensor index, or else from the files.
  [[nodiscard]] Result<std::pair<store::CommitRecord, Tensors>> record_with_tensors(std::uint64_t step,
                                                                                    unsigned threads) const;

  // store_settle.cpp
  Result<void> settle();
  Result<void> settle_again();
  void lose_sight() noexcept { is_settled_ = false; }
  [[nodiscard]] bool has_retired() const;
  Result<bool> is_spared_when_uncommitted(std::uint64_t step);
  // Whether a record refers to the step.
  bool is_referred_to(std::uint64_t step, UnreadableRecord unreadable);
  // The records of shards that wait for their commit.
  Result<std::vector<store::ShardRecord>> pending_shards(std::uint64_t step) const;
  // The records of shards that wait to replace the checkpoint that has this record.
  [[nodiscard]] Result<std::vector<store::ShardRecord>> waiting_replacements(std::uint64_t step,
                                                                             const store::CommitRecord& record) const;
  // Takes these records and their files out of `strays`, files of the step that its record does not name.
  Result<void> spare_waiting(std::uint64_t step, const store::CommitRecord& record,
                             std::vector<std::string>& strays) const;

  // store_save.cpp
  Result<void> begin_replacing(std::uint64_t step, const std::optional<ShardPlace>& place);
  // The name, or the next one as a rewritten file that the step does not hold.
  [[nodiscard]] Result<std::string> free_file_name(std::uint64_t step, std::string name) const;
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
  static Result<void> check_place(const ShardPlace& place);
  static Result<void> check_metadata(const std::vector<std::pair<std::string, std::string>>& metadata);

  // store_files.cpp
  static Result<void> check_files(const std::vector<CheckpointFile>& files);
  // Writes the files and the metadata of the caller, durably; nullopt if there are none. Syncs the directory of the
  // step in either case.
  Result<std::optional<store::ShardFile>> write_files(std::uint64_t step, const std::string& attempt,
                                                      const CommitOptions& options);

  // store_commit.cpp
  Result<CheckpointInfo> commit_record(const store::CommitRecord& record);
  // Replaces the record of a checkpoint by that of another attempt, and removes the files of the old one.
  Result<CheckpointInfo> replace_record(const store::CommitRecord& record);
  void remove_leftovers(const store::CommitRecord& record);
  CheckpointInfo note_committed(const store::CommitRecord& record);
  void give_up(std::uint64_t step, bool record_is_own);
  void update_catalog();
  void write_tensors(const store::CommitRecord& record);
  // check_new_step(), with an error that tells a late caller what became of the step.
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
  Result<std::optional<CheckpointInfo>> committed_already(std::uint64_t step, const std::string& attempt,
                                                          bool is_replaced);
  [[nodiscard]] Result<bool> check_shard_file(const store::ShardRecord& part, const std::string& record_path) const;

  // store_labels.cpp
  // The step that an entry names now; nullopt: none.
  [[nodiscard]] Result<std::optional<std::uint64_t>> step_of(const store::LabelEntry& entry) const;
  // The record with only those labels that name a checkpoint, each with its step alone.
  [[nodiscard]] Result<store::LabelRecord> settled(const store::LabelRecord& record) const;
  // Sets the labels of listed checkpoints. Leaves them empty if the labels cannot be read.
  void note_labels(std::vector<CheckpointInfo>& checkpoints, const Result<std::vector<StepLabel>>& labels) const;
  // Makes `next` the record of the labels, durably. `current` is what the record holds.
  Result<void> change_labels(const store::LabelRecord& current, const store::LabelRecord& next);
  // Runs before the commit record is written: the labels name the step from the moment when the record exists. Labels
  // that earlier checkpoints of this step had are dropped. Returns the labels of the step.
  Result<std::vector<std::string>> give_labels(const store::CommitRecord& record,
                                               const std::vector<std::string>& labels);
  // Whether give_labels() may change the record.
  [[nodiscard]] Result<bool> concerns_labels(std::uint64_t step, const std::vector<std::string>& labels) const;
  // Runs before steps are removed: no label may name another step when its own is gone.
  Result<void> settle_labels();

  // store_prune.cpp
  // What a plan has to know of a checkpoint with this record.
  static void describe(store::StepNode& node, const Known& known, const store::CommitRecord& record);
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
  std::set<std::uint64_t> needed_by(std::uint64_t step);
  // invalid_argument if a checkpoint that is kept as damaged leads to one of the `stuck` steps.
  Result<void> check_not_stuck(const std::set<std::uint64_t>& stuck, const std::set<std::uint64_t>& dropped);

  // store_verify.cpp. `records` are in order of steps. Returns an error only if verification could not continue.
  Result<std::vector<StoreDamage>> verify_records(store::CheckpointReader& reader,
                                                  std::span<const store::CommitRecord* const> records, bool decode,
                                                  const RunOptions& options) const;
  [[nodiscard]] Result<bool> verify_again(store::CheckpointReader& reader, store::CommitRecord record, bool is_retired,
                                          const StoreVerifyOptions& options, std::vector<StoreDamage>& damages) const;

  const store::RunLayout layout_;
  const std::shared_ptr<os::FileSystem> own_files_;
  os::FileSystem& file_system_;  // own_files_: follows no links in the store
  const StoreOptions options_;
  store::RunRecord run_;
  CodingSettings settings_;  // of options_, then of run_
  const std::shared_ptr<store::CheckpointReader> reader_;
  // The tensors that were listed last: a rank lists them to plan, and then reads.
  mutable std::mutex tensors_mutex_;
  mutable std::optional<store::CommitRecord> last_record_;
  mutable Tensors last_tensors_;

  store::WriteTurn turn_;
  store::StepDirectories directories_;
  std::unique_ptr<os::FileLock> lock_;
  std::uint64_t lock_file_id_ = 0;  // of the locked file
  std::map<std::uint64_t, Known> known_;
  Sight sight_ = Sight::nothing;  // how complete known_ is
  std::size_t all_steps_ = 0;     // number of steps when they were last listed
  bool strays_removed_ = false;
  bool has_lost_newest_ = false;     // the result of the last settle()
  std::size_t catalog_missing_ = 0;  // checkpoints committed since the catalog was written
  std::size_t published_ = 0;        // saves of this handle
  // False after a change of a step has failed: then nobody knows whether the step is there, and whether it would be
  // after a crash. The next writing call finds out as opening does.
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
