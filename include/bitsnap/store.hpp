// The checkpoints of one run in a directory: each is committed or not there at all, and what one of them is coded
// against stays as long as it is needed. docs/spec/store.md.
//
// A checkpoint is all shards of one step: one snapshot file from each rank, and a commit record that makes them exist.
// One handle writes at a time, over all processes and machines that see the directory; any number read meanwhile. A
// relative path is made absolute when the store is opened: what is open stays the same store when the working directory
// changes. A Store may be used by several threads: reading calls run side by side, writing calls one after another; a
// progress function must not call the Store that calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/settings.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap {

enum class StoreAccess : std::uint8_t {
  read,    // no lock; sees what is committed at each call
  write,   // holds the lock until closed; everybody else who wants to write is refused as busy
  shared,  // one of several ranks that write shards: takes the lock for each call only, for shards together with others
};

// Which checkpoints stay: those that any of the rules keeps, and always the newest.
struct Retention {
  std::optional<std::uint64_t> keep_last = {};   // the N newest, at least 1
  std::optional<std::uint64_t> keep_every = {};  // steps that are multiples of N, at least 1
  std::vector<std::uint64_t> keep = {};          // these steps; pruning by hand only, and not_found if one is missing

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
};

struct StoreOptions {
  StoreAccess access = StoreAccess::read;
  bool create = true;            // when writing: make the store if there is none. The directory above it has to exist
  CodingSettings settings = {};  // a new store remembers them
  // Rules before those of `settings` or of the store; a new store remembers them, too.
  std::vector<LossRule> first_loss = {};
  // Applied after each save and commit of this handle, if it has a rule; CheckpointInfo says what came of it.
  Retention retention = {};
  // Memory for keeping the newest state as the base of the next, so that saving decodes nothing: it is kept if twice
  // its size fits. Otherwise the base is read from its file.
  std::uint64_t base_memory_bytes = 0;
  std::uint64_t lock_wait_ms = 0;  // how long to wait for another writer before `busy`
  DecodeLimits limits = {};
};

// One committed checkpoint, as its commit record has it.
struct CheckpointInfo {
  std::uint64_t step = 0;
  std::int64_t time_unix_ms = 0;   // when it was committed
  std::uint64_t raw_bytes = 0;     // of the tensors of all shards, aliases not counted again
  std::uint64_t stored_bytes = 0;  // of all its files, the commit record included
  std::uint32_t shards = 0;
  std::optional<std::uint64_t> base;  // the step it is coded against; nullopt: a keyframe
  std::uint32_t links = 0;            // checkpoints on the way to its keyframe, this one counted: 0 for a keyframe
  std::uint32_t depth = 0;            // of its deepest chunk
  std::optional<Error> damage;        // its commit record cannot be read, and all else is unknown; of a
                                      // save: why a keyframe was made, as the base could not be read
  // Of a save or commit whose store has a retention: what was removed, or why nothing was. The checkpoint is saved
  // either way.
  std::optional<PruneReport> pruned = {};
  std::optional<Error> prune_error = {};
};

struct RollbackReport {
  std::vector<std::uint64_t> removed;  // newest first
  std::uint64_t removed_bytes = 0;
};

// One thing that is not as it should be.
struct StoreDamage {
  std::uint64_t step = 0;
  std::string file;   // relative to the store; "checkpoints/0000000010/commit.json"
  std::string where;  // "tensor 'x', chunk 3"; empty: the file as a whole
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
  std::vector<std::string> strays;   // harmless; the next prune or repair removes them
};

struct RepairOptions {
  bool dry_run = false;
  RunOptions run = {};
};

struct RepairReport {
  // A checkpoint that cannot be restored whole. Its files were moved to damaged/, not removed.
  struct Dropped {
    std::uint64_t step = 0;
    bool was_pruned = false;  // before, and kept only for what others need of it
    std::string moved_to;     // relative to the store
    std::vector<StoreDamage> damages;
  };
  struct Mended {
    std::optional<std::uint64_t> step;  // nullopt: the store itself
    std::string what;                   // "record made again (...)"
  };
  std::uint64_t checkpoints = 0;  // whole ones, after the repair
  std::vector<Dropped> dropped;
  std::vector<Mended> mended;
  std::vector<std::string> strays;  // removed
};

// What one rank adds to a checkpoint that several make together.
struct ShardPlace {
  std::uint32_t shard = 0;
  std::uint32_t shards = 1;  // at most 99,999
  // Names one attempt at saving this step, the same on all ranks and different from any earlier attempt: shards of two
  // attempts are never mixed. 1 to 64 of the characters a-z, 0-9 and '-',
  // but not an r followed by digits alone.
  std::string attempt;
};

// What commit() came to: a checkpoint, or what it waits for.
struct CommitOutcome {
  std::optional<CheckpointInfo> checkpoint;  // nullopt: shards are missing
  std::vector<std::uint32_t> missing;        // those that nobody has written yet, ascending; empty for a checkpoint

  // Whether the checkpoint is there.
  [[nodiscard]] explicit operator bool() const noexcept { return checkpoint.has_value(); }
};

class Store {
 public:
  // not_found where there is no store and none is to be made; busy where somebody else writes; invalid_argument where
  // the directory holds something else; unsupported for a newer format. Opening to write removes what was not
  // committed.
  [[nodiscard]] static Result<std::unique_ptr<Store>> open(const std::string& path, const StoreOptions& options = {});
  // Gives the lock back.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  [[nodiscard]] const std::string& path() const noexcept;    // absolute
  [[nodiscard]] const std::string& run_id() const noexcept;  // 32 hexadecimal digits
  // How this handle codes: what it was opened with, and what the store remembers where it was opened without. Every
  // setting that has a default has a value.
  [[nodiscard]] const CodingSettings& settings() const noexcept;

  // Committed steps, ascending.
  [[nodiscard]] Result<std::vector<std::uint64_t>> steps() const;
  // The same with what their commit records say.
  [[nodiscard]] Result<std::vector<CheckpointInfo>> list() const;
  // not_found, naming the steps nearby.
  [[nodiscard]] Result<CheckpointInfo> info(std::uint64_t step) const;

  // One shard of a checkpoint with all that it depends on, open: it can be read whatever is pruned afterwards. nullopt:
  // the newest step. not_found where the step or shard is not there.
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> snapshot(std::optional<std::uint64_t> step = std::nullopt,
                                                                 std::uint32_t shard = 0) const;

  // Saves a checkpoint of one shard; committed and durable when it returns. `step` has to be above all others:
  // invalid_argument otherwise.
  [[nodiscard]] Result<CheckpointInfo> save(std::uint64_t step, const State& state, const RunOptions& options = {});

  // Writes one shard, durably; it exists once commit() has been called. May be called for different shards at the same
  // time, from any process. The same shard of the same attempt again counts in place of the first, unless that was
  // committed.
  [[nodiscard]] Result<SaveSummary> save_shard(std::uint64_t step, const ShardPlace& place, const State& state,
                                               const RunOptions& options = {});
  // Commits the step if all shards of the attempt are there, and otherwise says which are missing. To be called by
  // anybody who may be the last, any number of times: once is enough, and more change nothing. invalid_argument where
  // another attempt committed the step, or where there is a later one and this one is gone: pruned since, or too late.
  [[nodiscard]] Result<CommitOutcome> commit(std::uint64_t step, std::uint32_t shards, const std::string& attempt);

  [[nodiscard]] Result<PruneReport> prune(const Retention& retention, const PruneOptions& options = {});

  // Removes all checkpoints after `step`, newest first; `step` has to be there.
  [[nodiscard]] Result<RollbackReport> rollback(std::uint64_t step);

  [[nodiscard]] Result<StoreVerification> verify(const StoreVerifyOptions& options = {}) const;

  // Makes everything that is whole restorable again on its own, and moves what is not aside. Works on stores whose
  // records are damaged, too.
  [[nodiscard]] static Result<RepairReport> repair(const std::string& path, const RepairOptions& options = {});

  // False once a commit on a file system without directory sync showed that a crash of the machine may undo it.
  [[nodiscard]] bool is_durable() const noexcept;

  class Impl;
  explicit Store(std::unique_ptr<Impl> impl) noexcept;

 private:
  std::unique_ptr<Impl> impl_;
};

// Whether a directory is a store.
[[nodiscard]] bool is_store(const std::string& path) noexcept;

}  // namespace bitsnap
