// The training job that the agent serves: what its ranks share. The agent owns one Job for each world size. Each member
// says which threads may use it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include <bitsnap/snapshot.hpp>

#include "engine/attempts.hpp"
#include "os/file_system.hpp"
#include "store/pending_save.hpp"

namespace bitsnap::engine {

// The ranks of a node publish shards with the same content one after another, so that the first one is on
// the disk when the others look for a file that is like theirs. Other shards do not wait. Thread-safe.
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

// What the first rank of a node has chosen to code its shard of an attempt against. Ranks with equal
// states choose the same, although a checkpoint may be committed in between, because only then are their files equal.
// Not thread-safe.
class AttemptCodings {
 public:
  // The choice of the first rank; nullptr if there is none yet. Valid until the next note().
  [[nodiscard]] const store::Coding* find(std::uint64_t step, const std::string& attempt) const {
    for (const Choice& choice : choices_) {
      if (choice.step == step && choice.attempt == attempt) return &choice.coding;
    }
    return nullptr;
  }

  void note(std::uint64_t step, const std::string& attempt, const store::Coding& coding) {
    if (find(step, attempt) != nullptr) return;
    choices_.push_back({step, attempt, coding});
    if (choices_.size() > kMost) choices_.pop_front();
  }

 private:
  static constexpr std::size_t kMost = 64;  // ranks are rarely more saves apart than this

  struct Choice {
    std::uint64_t step;
    std::string attempt;
    store::Coding coding;
  };
  std::deque<Choice> choices_;
};

struct Job {
  Job(os::FileSystem& file_system, std::string store, std::uint32_t ranks, std::string session,
      std::string attempt_prefix, unsigned encoder_threads)
      : files(file_system),
        store_path(std::move(store)),
        world_size(ranks),
        threads(encoder_threads),
        attempts(std::move(session), std::move(attempt_prefix)) {}

  os::FileSystem& files;
  const std::string store_path;
  const std::uint32_t world_size;
  const unsigned threads;
  Attempts attempts;           // any thread
  PublishTurns publish_turns;  // any thread
  std::mutex encode_gate;      // held while encoding: one rank at a time, with all threads
  AttemptCodings codings;      // used while `encode_gate` is held
};

}  // namespace bitsnap::engine
