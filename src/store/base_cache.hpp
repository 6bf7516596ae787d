// BaseCache: the newest snapshots of one rank, in memory. With it, the next save needs no disk and no decoding for its
// base, and a restarted trainer gets its state back. The cache holds snapshot files and the files that these are coded
// against, and refers to decoded chunks that are still in memory.
//
// A BaseCache owns its files, within a budget that also counts a file that is being written (Room), and the decoded
// state of the last save of a store without an agent. It refers weakly to other decoded states and to open snapshots. A
// snapshot that the cache has opened stays readable after the cache drops its files: it owns those that no disk has,
// and reads the others from the disk. It may outlive the cache. All functions are thread-safe.
//
// A snapshot's id is a hash of its content, so the cache holds a state that is saved twice only once. The cache neither
// decodes nor verifies. docs/spec/engine.md, "What a save is coded against".
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/snapshot.hpp>

#include "os/file_system.hpp"
#include "os/memory.hpp"
#include "os/memory_limit.hpp"
#include "restore/decoded_state.hpp"
#include "store/blob.hpp"
#include "store/state_keeper.hpp"

namespace bitsnap::store {

struct CachedSnapshot {
  std::uint64_t step = 0;
  SnapshotId id;
  std::shared_ptr<const Blob> blob;  // the file
  std::vector<SnapshotId> needs;     // the snapshots that it directly depends on
  bool persisted = false;
  std::string attempt = {};     // of several ranks: the states of one attempt belong together
  std::uint64_t raw_bytes = 0;  // of the state
};

class BaseCache final : public BaseProvider {
 public:
  struct Limits {
    std::uint32_t snapshots = 1;       // number of newest steps; the files that they depend on do not count
    std::uint64_t bytes = UINT64_MAX;  // of all files together
    std::uint64_t free_bytes = 0;      // a file that is written leaves this much memory of the system free
    std::uint64_t decoded_bytes = 0;   // for the decoded base and the next one, see make_keeper(); 0: not kept
  };

  BaseCache() : BaseCache(Limits()) {}
  explicit BaseCache(const Limits& limits, const DecodeLimits& decode_limits = {},
                     os::MemoryProbe probe = os::available_memory)
      : decode_limits_(decode_limits), probe_(std::move(probe)), limits_(limits) {}

  // Adds the newest snapshot, and removes all steps at or above its step, because the training has gone back. Files of
  // removed steps stay while others depend on them. Then drops files until the limits hold. Returns whether the
  // snapshot is whole in memory: false if it does not fit, or if a snapshot that it depends on is missing.
  bool put(CachedSnapshot snapshot);
  // Removes all steps at or above `step`.
  void forget_since(std::uint64_t step);
  void set_limits(const Limits& limits);
  [[nodiscard]] Limits limits() const;

  // The room for one file that is being written. While it exists, the file counts against the limits. One at a time.
  class Room {
   public:
    // `may_exceed`: files that cannot be dropped yet, as one that is being written to the disk, may exceed
    // Limits::bytes together with this one, but not the memory of the system. This file alone stays within
    // Limits::bytes.
    explicit Room(BaseCache& cache, bool may_exceed = false) noexcept : cache_(cache), may_exceed_(may_exceed) {}
    ~Room();
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;

    // Makes room for `bytes` bytes of the file: drops files that are published, then files of older steps. Returns
    // resource_exhausted if the limits do not allow the file to have this size.
    [[nodiscard]] Result<void> take(std::uint64_t bytes);
    // The file is written. From now on, it counts for as long as anyone holds it.
    void finish(const std::shared_ptr<const Blob>& blob);

   private:
    BaseCache& cache_;
    const bool may_exceed_;
    std::uint64_t checked_bytes_ = 0;  // the system had memory for this much of the file
  };
  // Drops all files that nobody has to restore from memory, except those that decoding `step` needs.
  void give_back(std::optional<std::uint64_t> step);
  // The newest snapshot can be restored without its file in memory, so that Room may drop it; nullopt: it cannot.
  void set_restorable(const std::optional<SnapshotId>& id);

  // Notes that `blob` was published as the file at `path`, with the file's current size, id and time. Does nothing if
  // the cache does not hold `blob`, or if the sizes differ.
  void note_published(const std::shared_ptr<os::FileSystem>& files, const std::string& path, const Blob& blob);
  // Notes that the checkpoint of this step, which several ranks save, is committed, so that a restore can read its
  // files.
  void note_committed(std::uint64_t step);
  // Opens the file at `path`: from memory if it was published there and the file on disk is still the same, otherwise
  // from the disk, with the pattern.
  [[nodiscard]] Result<std::unique_ptr<os::RandomAccessFile>> open_file(
      os::FileSystem& files, const std::string& path, os::AccessPattern pattern = os::AccessPattern::random) const;

  // Refers to the decoded bytes of a snapshot for as long as their owner keeps them.
  void set_decoded(const SnapshotId& id, const std::shared_ptr<const restore::DecodedState>& decoded);
  // Makes `snapshot` read its decoded bytes, and returns true, if the cache refers to any.
  bool attach_decoded(const Snapshot& snapshot) const;

  // Makes a keeper for the decoded bytes of the next save. A keeper gets half of `decoded_bytes`, because it gathers a
  // state while the previous one is still read. Returns nullptr if `decoded_bytes` is 0, and for the first save,
  // because many programs save only once, unless `at_once`.
  [[nodiscard]] std::unique_ptr<StateKeeper> make_keeper(bool at_once);
  // Keeps the decoded bytes of `snapshot`, which the store has just written to disk, for the next save. `keeper` holds
  // them, and may be nullptr.
  void keep_base(const Snapshot& snapshot, StateKeeper* keeper);
  [[nodiscard]] bool has_saved() const;            // whether keep_base() was called
  [[nodiscard]] std::uint64_t kept_bytes() const;  // of the base that is kept

  struct Newest {
    std::uint64_t step = 0;
    SnapshotId id;
    bool is_whole = false;
    // Links on the longest way to a snapshot that is persisted or has no base; 0 if this snapshot is one of these.
    std::uint32_t links = 0;
  };
  // Returns nullopt if no step is held, for example because the newest snapshot does not fit.
  [[nodiscard]] std::optional<Newest> newest() const;

  // The steps in ascending order. A step is incomplete only if it is the newest, or was incomplete when it was the
  // newest. Each with its attempt.
  [[nodiscard]] std::vector<std::pair<std::uint64_t, std::string>> attempts() const;

  struct Held {
    SnapshotId id;
    std::shared_ptr<const Blob> blob;
    std::uint64_t raw_bytes = 0;  // of the state
  };
  // The files that decoding a step needs, from all snapshots that it depends on: first the step's own, and each file
  // before the files that it depends on. Returns nullopt if the step or one of these files is not in memory.
  [[nodiscard]] std::optional<std::vector<Held>> chain(std::uint64_t step) const;

  // Opens a snapshot with everything that it depends on, and with its decoded chunks. Returns not_found unless the
  // cache holds all these files.
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> open(const SnapshotId& id) const;
  [[nodiscard]] Result<std::shared_ptr<const Base>> find(const SnapshotId& id) const override { return open(id); }

  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] bool holds(const Blob& blob) const;

 private:
  struct Entry {
    std::shared_ptr<const Blob> blob;
    std::vector<SnapshotId> needs;
    std::string name;  // the name that dependants store for it
    bool persisted = false;
    std::uint64_t raw_bytes = 0;
    std::uint64_t age = 0;                       // grows with each new entry
    std::shared_ptr<os::FileSystem> files = {};  // of the published file; nullptr: not published
    std::string path = {};                       // of the published file
    os::FileInfo file = {};                      // of the published file, as note_published() saw it
    std::weak_ptr<const Snapshot> opened = {};
  };
  struct Record {
    std::uint64_t step = 0;
    SnapshotId id;
    std::string attempt;
    bool is_committed = false;  // of several ranks: see note_committed()
  };

  // The caller of these functions holds the lock.
  // Like chain(). Also returns nullopt if snapshots depend on each other in a circle. Sets `missing` to an id that is
  // not in memory.
  [[nodiscard]] std::optional<std::vector<SnapshotId>> order(const SnapshotId& id, SnapshotId* missing) const;
  // Adds the snapshot, and all snapshots in memory that it depends on, to `reached`.
  void reach(const SnapshotId& id, std::set<SnapshotId>& reached) const;
  [[nodiscard]] std::uint32_t links_of(const SnapshotId& id) const;
  void refer_to_decoded(const SnapshotId& id, const std::shared_ptr<const restore::DecodedState>& decoded);
  [[nodiscard]] std::uint64_t held_bytes() const;
  // Of all files that somebody holds.
  [[nodiscard]] std::uint64_t used_bytes();
  void note_used(const std::shared_ptr<const Blob>& blob);
  // Drops one file that gives memory back, that nobody has to restore from memory, and that is not needed by `wanted`;
  // false if there is none.
  bool drop_one(const std::optional<SnapshotId>& wanted = std::nullopt);
  [[nodiscard]] std::unique_ptr<os::RandomAccessFile> file_of(const Entry& entry, std::string name) const;
  void trim();
  void drop_unneeded();
  // The entry to drop first, of those that are not in `kept`; nullopt if there is none. `gives_memory_back`: only those
  // that nobody else holds.
  [[nodiscard]] std::optional<SnapshotId> next_to_go(const std::set<SnapshotId>& kept, bool gives_memory_back) const;
  void drop_with_dependants(const SnapshotId& id);
  void drop_previous();

  const DecodeLimits decode_limits_;
  const os::MemoryProbe probe_;
  mutable std::mutex mutex_;
  Limits limits_;
  std::uint64_t writing_bytes_ = 0;              // of the file that is being written
  std::vector<std::weak_ptr<const Blob>> used_;  // all files that were put or written
  std::optional<SnapshotId> restorable_;
  mutable std::map<SnapshotId, Entry> entries_;
  std::deque<Record> records_;  // in ascending order of steps
  std::uint64_t ages_ = 0;
  std::map<SnapshotId, std::weak_ptr<const restore::DecodedState>> decoded_;
  // If the system took more than a quarter of a base back, it is short of memory, and keeping the next one would only
  // cost time.
  static constexpr int kSavesWithout = 16;
  int saves_without_ = 0;  // how many more saves keep nothing
  bool has_saved_ = false;
  std::int64_t kept_by_ = 0;  // the process that kept the base: a forked child has zeros in its place
  // The base, and the one before it until its memory is reused: what is coded against an earlier checkpoint is coded
  // again against the new one.
  std::shared_ptr<restore::DecodedState> base_state_;
  std::shared_ptr<os::Pages> base_memory_;
  std::shared_ptr<restore::DecodedState> previous_state_;
  std::shared_ptr<os::Pages> previous_memory_;
};

}  // namespace bitsnap::store
