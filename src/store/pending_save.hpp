// A save on its way through Store::Impl: begin() fills the first part, encode() the second, publish() the third.
//
// It holds the handle's write turn, and the lock of a shared handle, from begin() until it is destroyed, so that what
// the save is coded against stays. Destroyed before publish() it leaves at most files that no record names. Belongs to
// one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <bitsnap/store.hpp>

#include "os/file_system.hpp"
#include "store/blob.hpp"
#include "store/commit_record.hpp"
#include "store/state_keeper.hpp"
#include "store/write_turn.hpp"

namespace bitsnap::store {

// What one call that writes holds.
struct WriteGuard {
  WriteTurn::Held turn;
  std::unique_ptr<os::FileLock> lock;  // of a shared handle
};

// What the next file is coded against.
struct Coding {
  std::optional<std::uint64_t> base;    // as the record has it; nullopt: a keyframe
  std::optional<std::uint64_t> finder;  // the step whose shards are offered as bases
  std::uint32_t max_depth = 0;
  std::uint32_t links = 0;
  std::optional<Error> damage;  // why there is no base where there should be one
};

// Where encode() leaves the snapshot file. On the way to the disk, memory is bounded by the pipeline; a file in memory
// can be used before it is written, and needs no disk to be encoded.
enum class Destination : std::uint8_t { disk, memory };

struct PendingSave {
  WriteGuard guard;
  std::uint64_t step = 0;
  std::optional<ShardPlace> place;  // nullopt: the checkpoint has one shard, which publish() commits
  std::string file_name;
  Coding coding;
  std::unique_ptr<StateKeeper> keeper;  // nullptr: the decoded state is not kept

  ShardFile file;
  SaveSummary summary;
  std::shared_ptr<const Blob> blob;          // nullptr: the file is on the disk
  std::shared_ptr<const Snapshot> snapshot;  // the file, open

  CheckpointInfo info;  // of a checkpoint of one shard
};

}  // namespace bitsnap::store
