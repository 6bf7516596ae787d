// PendingSave: a save on its way through Store::Impl. begin() fills the first group of fields, encode() the second, and
// publish() the third.
//
// A PendingSave holds the handle's write turn, and the lock of a shared handle, from begin() until it is destroyed, so
// that nobody removes its base. If it is destroyed before publish(), at most files that no record names remain. Belongs
// to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/store.hpp>

#include "os/file_system.hpp"
#include "store/blob.hpp"
#include "store/commit_record.hpp"
#include "store/state_keeper.hpp"
#include "store/write_turn.hpp"

namespace bitsnap::store {

// What a writing call holds.
struct WriteGuard {
  WriteTurn::Held turn;
  std::unique_ptr<os::FileLock> lock;  // of a shared handle
};

// What the next file is coded against.
struct Coding {
  std::optional<std::uint64_t> base;    // as in the commit record; nullopt: a keyframe
  std::optional<std::uint64_t> finder;  // the step whose shards are offered as bases
  std::uint32_t max_depth = 0;
  std::uint32_t links = 0;
  std::optional<Error> damage;                    // why the file has no base, although it should
  std::optional<std::uint64_t> coded_share = {};  // both as in the commit record
  std::optional<std::uint32_t> coded_age = {};
};

// Where encode() leaves the snapshot file. On the way to disk, the pipeline bounds the memory. A file in memory needs
// no disk to be encoded, and can be used before it is written.
enum class Destination : std::uint8_t { disk, memory };

struct PendingSave {
  WriteGuard guard;
  std::uint64_t step = 0;
  std::optional<ShardPlace> place;  // nullopt: one shard, which publish() commits
  CommitOptions commit;             // of a checkpoint with one shard
  bool replaces = false;            // the newest checkpoint
  std::string file_name;
  Coding coding;
  std::unique_ptr<StateKeeper> keeper;  // nullptr: the decoded state is not kept

  ShardFile file;
  SaveSummary summary;
  std::shared_ptr<const Blob> blob;                     // nullptr: the file is on the disk
  std::shared_ptr<const Snapshot> snapshot;             // the open file
  std::vector<std::pair<std::string, double>> metrics;  // as in the commit record

  Checkpoint info;  // of a checkpoint with one shard
};

}  // namespace bitsnap::store
