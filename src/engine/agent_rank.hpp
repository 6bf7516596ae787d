// The agent's work for one rank: it encodes the states that the trainer stages, keeps the snapshots in memory,
// publishes them to the store, and gives them back.
//
// An AgentRank owns two threads. The encoder thread turns each staged state into a snapshot file in memory, in the
// order of staging. The writer thread publishes the snapshots that go to the store: it writes, commits and prunes. At
// most one snapshot waits between the two, because it is the base of the next save to the store. Saves for memory only
// are encoded while one is published; behind a second save to the store, they wait with it.
//
// All public functions may be called from any thread, and none waits for a disk or an encoding. Both threads report to
// a ProgressSink. The rank's lock, which comes before those of its parts, guards the slots and the trainer's number.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/writer.hpp>

#include "engine/job.hpp"
#include "engine/messages.hpp"
#include "engine/rank_slots.hpp"
#include "engine/rank_store.hpp"
#include "engine/rank_totals.hpp"
#include "engine/save_queue.hpp"
#include "exec/executor.hpp"
#include "os/clock.hpp"
#include "os/shared_memory.hpp"
#include "store/base_cache.hpp"

namespace bitsnap::engine {

// The ticket of a save that no trainer staged: far above those of trainers, and one for each step.
[[nodiscard]] constexpr std::uint64_t kept_ticket(std::uint64_t step) noexcept { return UINT64_MAX - step; }

class ProgressSink {
 public:
  ProgressSink() = default;
  ProgressSink(const ProgressSink&) = delete;
  ProgressSink& operator=(const ProgressSink&) = delete;
  virtual ~ProgressSink() = default;

  // `trainer`: how many trainers of this rank had called renew() when the trainer of the event did. Called with the
  // rank's lock held, so that events and renew() have one order. An implementation must not call the rank.
  virtual void tell(std::uint32_t rank, std::uint64_t trainer, ProgressEvent event) = 0;
  // Wakes the loop: a fetch has finished, the steps in memory have changed, or the rank has become idle.
  virtual void wake() = 0;
};

[[nodiscard]] inline std::uint64_t elapsed_us(const os::Stopwatch& stopwatch) { return stopwatch.elapsed_ns() / 1000; }

// For status output and monitoring.
struct RankReport : SaveTotals, SaveQueue::Counts {
  std::uint64_t arena_bytes = 0;
  std::uint32_t slots = 0;
  std::uint64_t budget_bytes = 0;
  std::uint64_t memory_bytes = 0;  // compressed snapshots
  std::vector<std::uint64_t> memory_steps = {};
};

class AgentRank {
 public:
  AgentRank(Job& job, const Hello& hello, ProgressSink& sink);
  // Waits for the save that is being encoded or published, and drops the rest.
  ~AgentRank();
  AgentRank(const AgentRank&) = delete;
  AgentRank& operator=(const AgentRank&) = delete;

  // The present arena and a second descriptor of it; without an arena, no slots and no descriptor.
  struct ArenaView {
    std::uint64_t trainer = 0;  // the number of this trainer: later events carry it
    std::uint64_t slot_bytes = 0;
    std::vector<HeldSlot> slots;
    os::Descriptor descriptor;
  };
  // A new trainer of the rank has said hello: its settings apply from now on.
  [[nodiscard]] ArenaView renew(const Hello& hello);
  [[nodiscard]] Result<void> set_arena(os::SharedMemory memory, const ArenaOffer& offer);

  [[nodiscard]] Result<void> stage(const Staged& staged);
  // Takes effect when the writer thread has no save at hand. Steps that the store does not have are ignored.
  void rotate(const Rotation& rotation);
  // How many slots the trainer may write; nullopt without an arena.
  [[nodiscard]] std::optional<std::size_t> free_slots() const;

  // The steps in memory that can be restored, ascending, each with its attempt.
  [[nodiscard]] std::vector<std::pair<std::uint64_t, std::string>> memory_attempts() const;
  // Whether the cache has no later step, not even one that cannot be restored.
  [[nodiscard]] bool is_newest(std::uint64_t step) const;
  // How far the work has come.
  [[nodiscard]] const SaveQueue& queue() const noexcept { return queue_; }

  // Queued behind earlier saves and fetches. The encoder thread calls `done`, or the caller of abandon().
  void fetch(const FetchRequest& request, FetchDone done) { queue_.push(QueuedFetch{request, std::move(done)}); }
  // Stores what memory has of the step, unless the store has the step. Queued behind earlier work. If it fails, an
  // event with kept_ticket() says why.
  void persist(const PersistRequest& request) { queue_.push(request); }
  // Later events belong to trainer 0, which is none, so that no trainer of another job takes them for its own.
  void retire();
  // Drops all saves and fetches that are not being encoded or published.
  void abandon();

  [[nodiscard]] RankReport report() const;

 private:
  // agent_rank.cpp
  void run_encoder();
  void run_writer();
  // Precondition of the next four functions: `mutex_` is held.
  [[nodiscard]] store::BaseCache::Limits memory_limits() const;
  void tell(ProgressEvent event) { sink_.tell(rank_, trainer_, std::move(event)); }
  void free_slot_locked(std::uint32_t slot);
  void fail_save_locked(std::uint64_t ticket, std::uint64_t step, Error error, bool is_skip = false,
                        bool is_for_store = true);
  // Precondition: the slot's save is being encoded. Later, the slot may belong to another arena.
  void free_slot(std::uint32_t slot);
  void fail_save(const QueuedSave& queued, Error error);

  // agent_encode.cpp
  void encode(const QueuedSave& queued);
  // Begins the save in the store. The gate is locked while the lock that it returns lives.
  [[nodiscard]] Result<std::unique_lock<std::mutex>> begin_encoding(Publication& publication);
  void note_encoded(const store::PendingSave& save, ProgressEvent& event);
  void end_encoding(Publication& publication, bool is_encoded, const ProgressEvent& event);
  struct Encoded {
    std::shared_ptr<const Snapshot> snapshot;  // the open file; nullptr if the step is in the store already
    std::shared_ptr<const store::Blob> blob;   // nullptr: the file is on disk only
    std::vector<ConstByteSpan> tensors;        // of the slot
  };
  [[nodiscard]] Result<Encoded> encode_for_store(const QueuedSave& queued, Publication& publication,
                                                 ProgressEvent& event);
  [[nodiscard]] Result<Encoded> encode_for_memory(const QueuedSave& queued, ProgressEvent& event);
  // Reads the state from the slot, and subtracts what its tensors need from the budget.
  [[nodiscard]] Result<State> read_state(const QueuedSave& queued);
  // Keeps the state of a save to the store that the store did not take. Returns whether the slot is held or freed.
  [[nodiscard]] bool keep_in_memory_only(const QueuedSave& queued);
  // The newest snapshot in memory, as a base; nullptr if there is none or the next save may not use it.
  [[nodiscard]] std::shared_ptr<const Base> memory_base(std::uint32_t longest_chain, ProgressEvent& event);
  // The longest chain of snapshots for memory only. The mutex must be locked.
  [[nodiscard]] std::uint32_t memory_chain() const;
  // Keeps a snapshot in memory, and holds or frees its slot. Reports the stage `memory`.
  [[nodiscard]] Result<void> keep(const QueuedSave& queued, const Encoded& encoded, ProgressEvent& event);
  // What of the state the cache has: its files. Returns whether a restore needs nothing else.
  [[nodiscard]] bool cache_file(const QueuedSave& queued, const Encoded& encoded, std::uint64_t raw_bytes);

  // agent_memory.cpp
  [[nodiscard]] Result<FetchResult> gather_step(const FetchRequest& request);
  struct HeldState {
    std::uint32_t slot = 0;
    SlotState state;
    std::shared_ptr<const Arena> arena;  // has the bytes, also if the trainer brings another one
  };
  // The held slot with the complete state of a step.
  [[nodiscard]] std::optional<HeldState> slot_of(std::uint64_t step) const;
  // Gives back the snapshots that are in the store, and, if `step` is there, the slot that holds it.
  void give_back_stored(std::uint64_t step, const std::string& attempt);

  // agent_persist.cpp
  void persist_kept(const PersistRequest& request);
  // Returns whether there is anything to publish.
  [[nodiscard]] Result<bool> encode_kept(const PersistRequest& request, Publication& publication, ProgressEvent& event);

  // agent_publish.cpp
  void publish(Publication& publication);
  void commit_complete_attempts();
  void finish(const ProgressEvent& event, std::uint64_t step);
  void remove_rotated();

  Job& job_;
  ProgressSink& sink_;
  const std::uint32_t rank_;
  const std::unique_ptr<exec::Executor> executor_;
  const std::shared_ptr<store::BaseCache> cache_ = std::make_shared<store::BaseCache>();
  RankStore store_;
  SaveQueue queue_;
  RankTotals totals_;

  mutable std::mutex mutex_;
  std::uint64_t trainer_ = 0;  // number of trainers that have said hello
  RankSlots slots_{*cache_};
  // How much memory the rank may use, as its trainer says.
  struct Budget {
    std::uint64_t bytes = 0;  // 0: not stated
    std::uint32_t snapshots = 1;
    std::uint64_t tensors = 0;  // of the newest state
  };
  Budget budget_;

  std::thread writer_;
  std::thread encoder_;
};

}  // namespace bitsnap::engine
