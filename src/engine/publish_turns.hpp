// PublishTurns: the ranks of a node publish shards with the same content one after another, so that the first one is on
// the disk when the others look for a file that is like theirs. Other shards do not wait. Thread-safe.
#pragma once

#include <condition_variable>
#include <mutex>
#include <set>

#include <bitsnap/snapshot.hpp>

namespace bitsnap::engine {

class PublishTurns {
 public:
  // Held while a shard is published.
  class Turn {
   public:
    Turn(PublishTurns& turns, const SnapshotId& id) : turns_(turns), id_(id) {
      std::unique_lock lock(turns_.mutex_);
      turns_.changed_.wait(lock, [this] { return turns_.taken_.insert(id_).second; });
    }
    ~Turn() {
      {
        const std::lock_guard lock(turns_.mutex_);
        turns_.taken_.erase(id_);
      }
      turns_.changed_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    PublishTurns& turns_;
    const SnapshotId id_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<SnapshotId> taken_;
};

}  // namespace bitsnap::engine
