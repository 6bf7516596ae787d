// The newest snapshots of one rank in memory, compressed, with what they depend on: docs/spec/engine.md, "What a save
// is coded against".
//
// Owns the blobs, and remembers open snapshots weakly. What it opens owns what it depends on, so it can be read
// whatever goes from memory afterwards, and outlives the tier. Thread-safe.
//
// A snapshot is told by its id, which is that of its content: one that is held whole is not held again when the same
// state comes a second time. Nothing is decoded or verified here, and nothing is looked for on a disk.
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

#include "engine/blob.hpp"

namespace bitsnap::engine {

struct MemorySnapshot {
  std::uint64_t step = 0;
  SnapshotId id;
  std::shared_ptr<const Blob> blob;  // the file
  std::vector<SnapshotId> needs;     // the snapshots that it depends on itself
  bool persisted = false;
  std::string attempt = {};  // of several ranks: which of their states belong together
};

class MemoryTier final : public BaseProvider {
 public:
  struct Limits {
    std::uint32_t snapshots = 1;       // of the newest steps; what they depend on comes on top
    std::uint64_t bytes = UINT64_MAX;  // of all blobs
  };

  explicit MemoryTier(const Limits& limits, const DecodeLimits& decode_limits = {})
      : decode_limits_(decode_limits), limits_(limits) {}

  // The newest from now on. Steps that are not below it are of a future that was given up: they are no longer there,
  // but as far as others depend on them. Then what exceeds the limits goes. Whether it is held, whole: not so where it
  // depends on something that is not in memory, or does not fit.
  bool put(MemorySnapshot snapshot);
  void set_limits(const Limits& limits);
  // Does nothing where it is not held any more.
  void set_persisted(const SnapshotId& id);

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

  // Opens a snapshot that is held whole, with all that it depends on; not_found where it is not.
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
    std::uint64_t age = 0;  // the larger, the later it came
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
};

}  // namespace bitsnap::engine
