// The checkpoints of one run in a directory. A checkpoint is committed completely or not at all, and the files that it
// is coded against stay as long as it needs them. docs/spec/store.md.
//
// A checkpoint consists of all shards of one step: one snapshot file from each rank, and a commit record, which makes
// the checkpoint exist. One handle writes at a time, among all processes and machines that see the directory; any
// number of handles read. A relative path is made absolute when the store is opened. A Store may be used by several
// threads: reading calls run in parallel, writing calls one after another. A progress function must not call its Store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/branch.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/global_tensor.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/settings.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap {

enum class StoreAccess : std::uint8_t {
  read,    // takes no lock; each call sees what is committed at that time
  write,   // holds the lock until it is closed; other writers get busy
  shared,  // one of several ranks that write shards: takes the lock for each call, and shares it with other ranks
};

// Which checkpoints stay: those that any of the rules keeps, and always the newest.
struct Retention {
  std::optional<std::uint64_t> keep_last = {};   // the N newest, at least 1
  std::optional<std::uint64_t> keep_every = {};  // steps that are multiples of N, at least 1
  std::vector<std::uint64_t> keep = {};          // these steps; pruning by hand only, and not_found if one is missing
  bool keep_labelled = false;                    // those with a label; a handle's retention needs another rule as well

  friend bool operator==(const Retention&, const Retention&) = default;
};

// invalid_argument, with field(), for a number that is 0.
[[nodiscard]] Result<void> check_retention(const Retention& retention);

// What to do about a checkpoint that is not to stay but that others need.
enum class Reencode : std::uint8_t {
  when_it_pays,  // rewrite the others without it where that frees more bytes than it writes, and no chain is broken up
  never,         // leave it until nothing needs it
  always,        // rewrite the others, as keyframes where nothing else is left
};

struct PruneOptions {
  Reencode reencode = Reencode::when_it_pays;
  bool dry_run = false;  // report, and change nothing
  RunOptions run = {};   // progress: bytes of what is rewritten
};

struct PruneReport {
  struct Removed {
    std::uint64_t step = 0;
    std::uint64_t bytes = 0;
    bool was_pruned = false;  // by an earlier call, which left its files because others needed them
  };
  // Not kept, but others need its files.
  struct Needed {
    std::uint64_t step = 0;
    std::uint64_t bytes = 0;
    std::uint64_t by = 0;  // a step that needs it
    bool was_pruned = false;
  };
  struct Rewritten {
    std::uint64_t step = 0;
    std::uint64_t bytes_before = 0;
    std::uint64_t bytes_after = 0;  // 0 in a dry run: not known before it is done
  };
  bool dry_run = false;
  std::vector<std::uint64_t> kept;  // ascending, like the others
  std::vector<Removed> removed;
  std::vector<Needed> needed;
  std::vector<Rewritten> rewritten;
  std::uint64_t removed_bytes = 0;
  std::vector<std::string> strays;  // files and directories that belonged to no checkpoint, relative to the store
  // Of the checkpoints in `kept`, as they are afterwards; in a dry run, as they are before they are rewritten.
  std::uint64_t kept_raw_bytes = 0;
  std::uint64_t kept_bytes = 0;
  std::uint64_t needed_bytes = 0;  // of `needed`

  // What the run holds on disk for `kept_raw_bytes`.
  [[nodiscard]] std::uint64_t held_bytes() const noexcept { return kept_bytes + needed_bytes; }
};

// What a run holds on disk.
struct RunUsage {
  std::uint64_t checkpoints = 0;
  std::uint64_t raw_bytes = 0;                   // of their tensors
  std::uint64_t stored_bytes = 0;                // of their files
  std::vector<PruneReport::Needed> needed = {};  // checkpoints that were pruned and stay because these need them
  std::uint64_t needed_bytes = 0;

  [[nodiscard]] std::uint64_t held_bytes() const noexcept { return stored_bytes + needed_bytes; }
};

struct StoreOptions {
  StoreAccess access = StoreAccess::read;
  bool create = true;            // when writing: create the store if it does not exist, in a directory that must exist
  CodingSettings settings = {};  // a new store remembers them
  // Rules before those of `settings` or of the store; a new store remembers them, too.
  std::vector<LossRule> first_loss = {};
  // Applied after each save and commit of this handle, if it has a rule; Checkpoint says what came of it.
  Retention retention = {};
  // False: others remove checkpoints as the retention says. This handle only codes for it. So do all ranks but one.
  bool prunes = true;
  // From the second save of a run in this process on, or the first one in an object store, its newest state stays in
  // memory if twice its size fits into this, so that the next save need not decode it, also with another handle. The
  // system may take that memory back whenever it is short of it; the next save then reads the state from its files. 0
  // keeps nothing.
  std::uint64_t keep_base_bytes = UINT64_MAX;
  // What this handle loads becomes the base of saves: of a run in an object store, this machine keeps a copy of it. The
  // directory is BITSNAP_CACHE in the environment, else XDG_CACHE_HOME/bitsnap, else ~/.cache/bitsnap;
  // BITSNAP_CACHE_BYTES limits its size [32e9], and 0 keeps nothing. Not for a handle that verifies or repairs.
  bool loads_bases = false;
  // How long to wait for another writer before `busy`; with `shared` at least two seconds, as a rank that creates,
  // labels or prunes does so alone.
  std::uint64_t timeout_ms = 0;
  // Asked while a call waits for another writer, or for another call of this handle; true ends it with `cancelled`.
  std::function<bool()> interrupted = {};
  DecodeLimits limits = {};
};

// One committed checkpoint, from its commit record.
struct Checkpoint {
  std::uint64_t step = 0;
  std::int64_t time_unix_ms = 0;   // when it was committed
  std::uint64_t raw_bytes = 0;     // of the tensors of all shards; aliases are not counted again
  std::uint64_t stored_bytes = 0;  // of all its files, shared ones once, with the commit record
  std::uint32_t shards = 0;
  std::optional<std::uint64_t> base;  // the step that it is coded against; nullopt: a keyframe
  std::uint32_t links = 0;            // length of its chain of checkpoints back to the keyframe; 0 for a keyframe
  std::uint32_t depth = 0;            // of its deepest chunk
  // What commit() was given. Strings that belong to a snapshot are in Snapshot::metadata().
  std::vector<std::pair<std::string, std::string>> metadata = {};
  // Numbers of the training, such as its loss: the strings "metrics.NAME" of State::metadata that are numbers, of the
  // first shard that has any.
  std::vector<std::pair<std::string, double>> metrics = {};
  // In a list: why its commit record cannot be read; the other fields are then unknown, and `shards` is 0. Or, with all
  // fields, that a repair keeps it as damaged. Of a save: why the base could not be read, so that the checkpoint became
  // a keyframe.
  std::optional<Error> damage;
  // Of a save or commit whose store has a retention: what was removed, or why nothing was. The checkpoint is saved
  // either way.
  std::optional<PruneReport> pruned = {};
  std::optional<Error> prune_error = {};
  std::vector<std::string> labels = {};  // in order of their bytes; empty in a list if labels.json is damaged
  // By Store::checkpoint() only: checkpoints that were pruned and stay because this one needs them, and maybe others,
  // too.
  std::vector<PruneReport::Needed> needed = {};
};

// A small file that belongs to a checkpoint.
struct CheckpointFile {
  std::string name;  // 1 to 255 bytes of UTF-8 without '/', '\\' and control characters; not "." or ".."
  std::vector<std::byte> bytes;

  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};
inline constexpr std::size_t kMaxCheckpointFiles = 10'000;                           // of one checkpoint
inline constexpr std::uint64_t kMaxCheckpointFilesBytes = std::uint64_t{64} << 20U;  // all of them

// What a checkpoint gets when it is committed, beside its state.
struct CommitOptions {
  // Labels, as Store::label() gives them. The checkpoint exists with all of them, or not at all.
  std::vector<std::string> labels = {};
  // If the step is the newest checkpoint, replaces that at one moment. The new one keeps its labels, and is coded
  // against the one before it. Shards that wait for the commit of a later step and need the old one cannot be
  // committed.
  bool replace = false;
  // Strings to keep with a checkpoint of several ranks, at most kMaxCommitMetadataBytes, in UTF-8, no key twice; for
  // Store::commit() only. Let one rank commit, or give the same in all calls.
  std::vector<std::pair<std::string, std::string>> metadata = {};
  // Files to keep with the checkpoint, no name twice. The checkpoint exists with all of them, or not at all. With
  // Store::commit(), let one rank commit, or give the same in all calls.
  std::vector<CheckpointFile> files = {};
};
inline constexpr std::uint64_t kMaxCommitMetadataBytes = std::uint64_t{64} << 20U;

// A label and the step that it names.
struct StepLabel {
  std::string label;
  std::uint64_t step = 0;

  friend bool operator==(const StepLabel&, const StepLabel&) = default;
};

struct RollbackReport {
  std::vector<std::uint64_t> removed;  // newest first
  std::uint64_t removed_bytes = 0;
};

// One thing that is not as it should be.
struct StoreDamage {
  std::uint64_t step = 0;  // 0 for labels.json, which belongs to no step
  std::string file;        // relative to the store; "checkpoints/0000000010/commit.json"
  std::string where;       // "tensor 'x', chunk 3"; empty: the file as a whole
  Error error;
};

struct StoreVerifyOptions {
  bool decode = true;                     // otherwise the stored bytes only
  std::vector<std::uint64_t> steps = {};  // these; empty: all
  RunOptions run = {};
};

struct StoreVerification {
  std::uint64_t checkpoints = 0;
  std::uint64_t bytes = 0;           // of the files that were read
  std::vector<StoreDamage> damages;  // by step
  std::vector<std::string> strays;   // files of no checkpoint; the next prune or repair removes them
};

struct RepairOptions {
  bool dry_run = false;
  RunOptions run = {};
};

struct RepairReport {
  // A checkpoint of which nothing can be read. Its files were moved to damaged/.
  struct Dropped {
    std::uint64_t step = 0;
    bool was_pruned = false;  // earlier, and its files were kept because other checkpoints need them
    std::string moved_to;     // relative to the store
    std::vector<StoreDamage> damages;
  };
  // A checkpoint that stays in the store as damaged. Its other tensors can be read: Store::snapshot() with `partial`.
  struct Damaged {
    std::uint64_t step = 0;
    std::uint64_t tensors = 0;          // of all shards
    std::uint64_t damaged_tensors = 0;  // that cannot be read
    std::vector<StoreDamage> damages;
  };
  struct Mended {
    std::optional<std::uint64_t> step;  // nullopt: the store itself
    std::string what;                   // "record made again (...)"
  };
  std::uint64_t checkpoints = 0;  // sound checkpoints after the repair
  // The newest of these, from which a training can go on. To save steps that are not above the damaged ones, it rolls
  // the store back to this step first.
  std::optional<std::uint64_t> newest = {};
  std::vector<Dropped> dropped;
  std::vector<Damaged> damaged;
  std::vector<Mended> mended;
  std::vector<std::string> strays;  // removed
};

// The shard that one rank writes of a checkpoint of several ranks.
struct ShardPlace {
  std::uint32_t shard = 0;
  std::uint32_t shards = 1;  // at most 99,999
  // Names one attempt to save this step: the same on all ranks, and different from every earlier attempt. Shards of two
  // attempts are never mixed. 1 to 64 of the characters a-z, 0-9 and '-', but not an r followed by digits only.
  std::string attempt;
};

// The result of commit(): a checkpoint, or the shards that are missing.
struct CommitOutcome {
  std::optional<Checkpoint> checkpoint;  // nullopt: shards are missing
  std::vector<std::uint32_t> missing;    // shards that are not written yet, ascending; empty for a checkpoint

  // Whether the checkpoint exists.
  [[nodiscard]] explicit operator bool() const noexcept { return checkpoint.has_value(); }
};

class Store {
 public:
  // not_found if there is no store and none is to be created; busy if another handle writes; invalid_argument if the
  // directory holds other files or a setting is out of range; unsupported for a newer format. Opening to write removes
  // what was not committed. Here and in repair(), the path may be RUN:NAME.
  [[nodiscard]] static Result<std::unique_ptr<Store>> open(const std::string& path, const StoreOptions& options = {});
  ~Store();  // releases the lock
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  [[nodiscard]] const std::string& path() const noexcept;    // absolute
  [[nodiscard]] const std::string& run_id() const noexcept;  // 32 hexadecimal digits
  // How this handle codes: the settings that it was opened with, and for the others those that the store remembers.
  // Every setting with a default has a value.
  [[nodiscard]] const CodingSettings& settings() const noexcept;

  // Committed steps, ascending, with those that a repair keeps as damaged.
  [[nodiscard]] Result<std::vector<std::uint64_t>> steps() const;
  // The newest step that is not kept as damaged: the one to resume from. nullopt: there is none.
  [[nodiscard]] Result<std::optional<std::uint64_t>> latest() const;
  // All steps, with the contents of their commit records.
  [[nodiscard]] Result<std::vector<Checkpoint>> checkpoints() const;
  // What the run holds: its checkpoints, and pruned ones that they need. Reads all records if there are pruned ones,
  // and then fails if one of them cannot be read. Damaged checkpoints count with no bytes.
  [[nodiscard]] Result<RunUsage> usage();
  // not_found if there is no such step; the message names the nearest ones.
  [[nodiscard]] Result<Checkpoint> checkpoint(std::uint64_t step) const;

  // Opens one shard of a checkpoint with everything that it depends on, so that it stays readable whatever is pruned
  // later. nullopt: latest(). not_found if there is no such step or shard; busy if the step is saved again as often
  // as it is opened. `partial`: opens it also if something that it depends on is damaged or missing; what needs that
  // cannot be read (Snapshot::damaged_tensors()).
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> snapshot(std::optional<std::uint64_t> step = std::nullopt,
                                                                 std::uint32_t shard = 0, bool partial = false) const;

  // The tensors of all shards of a checkpoint. Opens one file if the checkpoint was committed by several ranks.
  // not_found if there is no such step.
  [[nodiscard]] Result<std::shared_ptr<const std::vector<GlobalTensor>>> tensors(std::uint64_t step) const;

  // Reads boxes of tensors from the shards that hold them, in parallel; decodes each chunk once. Opens only the shards
  // that are needed. After an error, the content of the memory is unspecified. not_found if there is no such step or
  // tensor, or if the shards do not hold all elements of a box; invalid_argument for a box that does not lie in its
  // tensor or has another dtype; corrupt if shards hold different values of the same elements.
  [[nodiscard]] Result<void> read_boxes(std::uint64_t step, std::span<const TensorBox> boxes,
                                        const RunOptions& options = {}) const;

  // The files that the checkpoint was committed with, in order of the bytes of their names. not_found if there is no
  // such step.
  [[nodiscard]] Result<std::vector<CheckpointFile>> files(std::uint64_t step) const;

  // Saves a checkpoint of one shard; it is committed and durable when the call returns. invalid_argument unless `step`
  // is above all steps of the store, or replaces the newest, which no checkpoint needs that a repair keeps as damaged.
  // `check` is called with what was written, before it is committed; after its error, which save() returns, the
  // checkpoint does not exist, or is the old one.
  using SaveCheck = std::function<Result<void>(const Snapshot& written)>;
  [[nodiscard]] Result<Checkpoint> save(std::uint64_t step, const State& state, const RunOptions& options = {},
                                        const SaveCheck& check = nullptr, const CommitOptions& commit = {});

  // Writes one shard durably; commit() makes it part of a checkpoint. Different shards may be written at the same time,
  // from any process. Writing a shard of an attempt again replaces the first one, unless that is committed. `replace`:
  // as in CommitOptions, by an attempt that has not committed the step; also for commit().
  [[nodiscard]] Result<SaveSummary> save_shard(std::uint64_t step, const ShardPlace& place, const State& state,
                                               const RunOptions& options = {}, bool replace = false);
  // Commits the step if all shards of the attempt are written, and otherwise returns the missing ones. Every rank calls
  // it after save_shard(); further calls change nothing. invalid_argument if another attempt committed the step, unless
  // this one replaces it, or if the store has a later step but not this one: it was pruned, or the call comes too late.
  // All ranks should give the same labels; those that an earlier commit of the attempt has not given are added, as by
  // label(). The record keeps the metadata and the files of the call that commits.
  [[nodiscard]] Result<CommitOutcome> commit(std::uint64_t step, std::uint32_t shards, const std::string& attempt,
                                             const CommitOptions& options = {});

  // Gives a checkpoint labels. A label is a name of a checkpoint beside its step: 1 to 255 bytes of UTF-8 without
  // control characters. It names at most one checkpoint of a store: one that names another moves to this step, at one
  // moment for all readers. It disappears with its checkpoint. not_found if there is no such step.
  [[nodiscard]] Result<void> label(std::uint64_t step, const std::vector<std::string>& labels);
  // Removes a label from its checkpoint. not_found if no checkpoint has it.
  [[nodiscard]] Result<void> unlabel(const std::string& label);
  // The step that a label names. not_found if there is none; the message names similar labels.
  [[nodiscard]] Result<std::uint64_t> find(const std::string& label) const;
  // All labels, in order of their bytes.
  [[nodiscard]] Result<std::vector<StepLabel>> labels() const;

  [[nodiscard]] Result<PruneReport> prune(const Retention& retention, const PruneOptions& options = {});

  // Removes these checkpoints, whatever their labels, and keeps all others; otherwise as prune() does. The newest one
  // may be among them: then the one before it is the newest, as after rollback(). not_found if a step is missing;
  // invalid_argument if no undamaged checkpoint would stay.
  [[nodiscard]] Result<PruneReport> remove(const std::vector<std::uint64_t>& steps, const PruneOptions& options = {});

  // Makes a branch of this run that begins with the checkpoint of this step and its labels. Its files, and those that
  // they need, become hard links of this store's files. The branch exists completely or not at all. Takes no lock of
  // this store, so the handle may be of any kind and others may write meanwhile. not_found if there is no such step;
  // invalid_argument if the branch exists or its name is none, or if a checkpoint is kept as damaged; busy if another
  // process makes or removes a branch; corrupt or truncated if a file is damaged.
  [[nodiscard]] Result<Branch> make_branch(const std::string& name, std::uint64_t step,
                                           const BranchOptions& options = {}) const;
  // The branches of this run, or of the run that this store is a branch of, in order of the bytes of their names.
  [[nodiscard]] Result<std::vector<Branch>> branches() const;
  // Removes a branch of this run with all its checkpoints. Branches that were made from it stay. not_found if there is
  // none; busy if a handle writes to it; invalid_argument if its directory holds other files.
  [[nodiscard]] Result<void> remove_branch(const std::string& name) const;

  // Removes all checkpoints after `step`, newest first. Those that stay and are coded against one of them are rewritten
  // before. not_found if there is no such step; invalid_argument if what can be read of a checkpoint that a repair
  // keeps as damaged needs one of them.
  [[nodiscard]] Result<RollbackReport> rollback(std::uint64_t step, const RunOptions& options = {});

  [[nodiscard]] Result<StoreVerification> verify(const StoreVerifyOptions& options = {}) const;

  // Makes every sound checkpoint restorable again, keeps those as damaged of which a tensor can be read, and moves the
  // others to damaged/. Also repairs stores whose records are damaged.
  [[nodiscard]] static Result<RepairReport> repair(const std::string& path, const RepairOptions& options = {});

  // False after a commit to a file system that cannot sync directories: a crash of the machine may undo that commit.
  [[nodiscard]] bool is_durable() const noexcept;

  class Impl;
  explicit Store(std::unique_ptr<Impl> impl) noexcept;

 private:
  std::unique_ptr<Impl> impl_;
};

// All shards of a checkpoint, of one version of it, and the tensors that they hold together.
struct OpenedShards {
  Checkpoint info;
  std::vector<std::shared_ptr<const Snapshot>> snapshots;
  std::shared_ptr<const std::vector<GlobalTensor>> tensors;
};

// Begins again if the checkpoint is replaced meanwhile; busy if that does not end. corrupt if a part of a tensor is not
// what its shard holds. Otherwise fails as Store::snapshot() and Store::tensors() do.
[[nodiscard]] Result<OpenedShards> open_all_shards(const Store& store, std::uint64_t step);

// Whether a directory is a store, even one that needs a repair. A framework's folder whose reference has the name of a
// run record is none.
[[nodiscard]] bool is_store(const std::string& path) noexcept;

}  // namespace bitsnap
