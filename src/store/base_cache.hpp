// What is kept in memory of the newest snapshots of one rank, so that the next one is encoded without reading a disk
// and without decoding, and a restarted trainer gets its state back: snapshot files, with those that they are coded
// against, and the decoded chunks that are still in memory.
//
// Owns the files, within a budget; refers weakly to decoded chunks and to open snapshots. What it opens owns what it
// depends on, so it can be read whatever is dropped from the cache afterwards, and outlives the cache. Thread-safe.
//
// A snapshot is identified by its id, a hash of its content: a state that is saved a second time is not held twice.
// Nothing is decoded or verified here. docs/spec/engine.md, "What a save is coded against".
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
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
#include "restore/decoded_state.hpp"
#include "store/blob.hpp"
#include "store/state_keeper.hpp"

namespace bitsnap::store {

struct CachedSnapshot {
  std::uint64_t step = 0;
  SnapshotId id;
  std::shared_ptr<const Blob> blob;  // the file
  std::vector<SnapshotId> needs;     // the snapshots that it depends on itself
  bool persisted = false;
  std::string attempt = {};  // of several ranks: which of their states belong together
};

class BaseCache final : public BaseProvider {
 public:
  struct Limits {
    std::uint32_t snapshots = 1;       // of the newest steps; what they depend on comes on top
    std::uint64_t bytes = UINT64_MAX;  // of all blobs
    std::uint64_t decoded_bytes = 0;   // of the decoded bytes of the open base, see make_keeper(); 0: none are kept
  };

  BaseCache() : BaseCache(Limits()) {}
  explicit BaseCache(const Limits& limits, const DecodeLimits& decode_limits = {})
      : decode_limits_(decode_limits), limits_(limits) {}

  // Adds the newest snapshot. Steps at or above its own belong to a future that was given up: they are dropped, unless
  // others depend on them. Then what exceeds the limits is dropped. Returns whether the snapshot is held whole: false
  // where it depends on a snapshot that is not in memory, or does not fit.
  bool put(CachedSnapshot snapshot);
  void set_limits(const Limits& limits);
  [[nodiscard]] Limits limits() const;

  // `blob`, if it is held, is the file at `path` from now on, as it stands there now.
  void note_published(os::FileSystem& files, const std::string& path, const Blob& blob);
  // Opens a file: from memory if it was published there and the disk still has that very file, else from the disk.
  [[nodiscard]] Result<std::unique_ptr<os::RandomAccessFile>> open_file(os::FileSystem& files,
                                                                        const std::string& path) const;

  // Decoded bytes of a snapshot, for as long as their owner keeps them.
  void set_decoded(const SnapshotId& id, const std::shared_ptr<const restore::DecodedState>& decoded);
  // From now on `snapshot` reads them, if there are any.
  void attach_decoded(const Snapshot& snapshot) const;

  // The snapshot that a store has written to the disk and keeps open as the base of the next save, with its decoded
  // bytes if twice their size fits into `decoded_bytes`: the next state is gathered while the last one is still read.
  // nullptr where there is no budget for it.
  [[nodiscard]] std::unique_ptr<StateKeeper> make_keeper();
  // `keeper`: what was gathered of the snapshot; may be nullptr.
  void keep_base(std::uint64_t step, std::shared_ptr<const Snapshot> snapshot, StateKeeper* keeper);
  // nullptr where the base that is kept is not of this step.
  [[nodiscard]] std::shared_ptr<const Snapshot> base(std::uint64_t step) const;
  void forget_base();

  struct Newest {
    std::uint64_t step = 0;
    SnapshotId id;
    bool is_whole = false;
    // To the nearest that are persisted or depend on nothing, on the longest way; 0: it is one itself.
    std::uint32_t links = 0;
  };
  // nullopt where nothing is held, also as the newest did not fit.
  [[nodiscard]] std::optional<Newest> newest() const;

  // Ascending. All but the newest are whole, or came as they are.
  [[nodiscard]] std::vector<std::uint64_t> steps() const;
  // The same, each with its attempt.
  [[nodiscard]] std::vector<std::pair<std::uint64_t, std::string>> attempts() const;

  struct Held {
    SnapshotId id;
    std::shared_ptr<const Blob> blob;
  };
  // What is needed to decode a step, over any number of snapshots, the wanted one first, each before what it depends
  // on; nullopt where the step or any of it is not in memory.
  [[nodiscard]] std::optional<std::vector<Held>> chain(std::uint64_t step) const;

  // Opens a snapshot that is held whole, with all that it depends on and with decoded chunks; not_found where it is
  // not.
  [[nodiscard]] Result<std::shared_ptr<const Snapshot>> open(const SnapshotId& id) const;
  [[nodiscard]] Result<std::shared_ptr<const Base>> find(const SnapshotId& id) const override;

  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] bool holds(const Blob& blob) const;

 private:
  struct Entry {
    std::shared_ptr<const Blob> blob;
    std::vector<SnapshotId> needs;
    std::string name;  // as those that are coded against it call it
    bool persisted = false;
    std::uint64_t age = 0;   // the larger, the later it came
    std::string path = {};   // where it was published; empty: nowhere
    os::FileInfo file = {};  // as it stood there
    std::weak_ptr<const Snapshot> opened = {};
  };
  struct Record {
    std::uint64_t step = 0;
    SnapshotId id;
    std::string attempt;
  };

  // All of these with the lock held.
  // As chain(); nullopt also where snapshots depend on each other in a circle. `missing`: an id that is not there.
  [[nodiscard]] std::optional<std::vector<SnapshotId>> order(const SnapshotId& id, SnapshotId* missing) const;
  // The snapshots that one depends on, as far as they are there, and itself.
  void reach(const SnapshotId& id, std::set<SnapshotId>& reached) const;
  [[nodiscard]] std::uint32_t links_of(const SnapshotId& id) const;
  [[nodiscard]] std::uint64_t held_bytes() const;
  void trim();
  void drop_unneeded();
  [[nodiscard]] SnapshotId next_to_go() const;
  void drop_with_dependants(const SnapshotId& id);

  const DecodeLimits decode_limits_;
  mutable std::mutex mutex_;
  Limits limits_;
  mutable std::map<SnapshotId, Entry> entries_;
  std::deque<Record> records_;  // steps ascending
  std::uint64_t ages_ = 0;
  std::map<SnapshotId, std::weak_ptr<const restore::DecodedState>> decoded_;
  std::uint64_t base_step_ = 0;
  std::shared_ptr<const Snapshot> base_;  // nullptr: none is kept
  std::shared_ptr<restore::DecodedState> base_state_;
  std::vector<StreamBuffer> spare_;  // of the base before
};

}  // namespace bitsnap::store
