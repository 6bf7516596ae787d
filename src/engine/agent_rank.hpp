// What an agent does for one rank: it encodes what the rank's trainer stages, keeps it in memory, persists it, and
// gives it back.
//
// It has two threads. The encoder turns each staged state into a snapshot file in memory, in the order of staging. The
// writer publishes those that are to be persisted: writes them into the store, commits and prunes. Between the two
// there is at most one snapshot, because the next persisted save is coded against it; saves for memory only are encoded
// meanwhile, however slow the disk is. All functions may be called from any thread, and none waits for a disk or for an
// encoding. Both threads report to a ProgressSink.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/writer.hpp>

#include "engine/attempts.hpp"
#include "engine/messages.hpp"
#include "exec/executor.hpp"
#include "os/clock.hpp"
#include "os/file_system.hpp"
#include "os/shared_memory.hpp"
#include "restore/decoded_state.hpp"
#include "store/base_cache.hpp"
#include "store/pending_save.hpp"

namespace bitsnap::engine {

class ProgressSink {
 public:
  ProgressSink() = default;
  ProgressSink(const ProgressSink&) = delete;
  ProgressSink& operator=(const ProgressSink&) = delete;
  virtual ~ProgressSink() = default;

  // `trainer`: its number, as renew() counts the trainers of a rank. Called with the rank's lock held, so that events
  // and renew() are in one order: must call nothing of the rank.
  virtual void tell(std::uint32_t rank, std::uint64_t trainer, ProgressEvent event) = 0;
  // Something became ready that was asked for: a fetch, a list, idleness.
  virtual void wake() = 0;
};

// What all ranks of a job have in common.
struct JobContext {
  JobContext(os::FileSystem& file_system, std::string store, std::uint32_t ranks, std::string session,
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
  Attempts attempts;
  std::mutex encode_gate;  // held by whoever encodes: one at a time, with all threads
};

[[nodiscard]] inline std::uint64_t elapsed_us(const os::Stopwatch& stopwatch) { return stopwatch.elapsed_ns() / 1000; }

// For people and monitoring.
struct RankReport {
  std::uint32_t rank = 0;
  std::uint64_t arena_bytes = 0;
  std::uint32_t slots = 0;
  std::uint64_t budget_bytes = 0;
  std::uint64_t memory_bytes = 0;  // compressed snapshots
  std::vector<std::uint64_t> memory_steps;
  std::size_t queued = 0;
  bool is_encoding = false;
  bool is_writing = false;
  std::size_t uncommitted = 0;  // shards that wait for those of other ranks
  std::uint64_t saves = 0;      // that came to memory
  std::uint64_t persisted = 0;
  std::uint64_t failed = 0;
  std::uint64_t raw_bytes = 0;  // of all that was compressed, also where it did not come to memory
  std::uint64_t stored_bytes = 0;
  std::uint64_t encode_us = 0;
  std::uint64_t write_us = 0;
  std::optional<std::uint64_t> last_persisted_step;
  std::string last_error;
};

class AgentRank {
 public:
  AgentRank(JobContext& job, const Hello& hello, ProgressSink& sink);
  // Waits for what is being encoded or written, and gives up the rest.
  ~AgentRank();
  AgentRank(const AgentRank&) = delete;
  AgentRank& operator=(const AgentRank&) = delete;

  // The arena as it is, and a second descriptor of it; no slots, and none, where there is none.
  struct ArenaView {
    std::uint64_t trainer = 0;  // the number of this trainer: events from now on carry it
    std::uint64_t slot_bytes = 0;
    std::vector<HeldSlot> slots;
    os::Descriptor descriptor;
  };
  // A new trainer of the rank has said hello: its settings hold from now on.
  [[nodiscard]] ArenaView renew(const Hello& hello);
  [[nodiscard]] Result<void> set_arena(os::SharedMemory memory, const ArenaOffer& offer);

  [[nodiscard]] Result<void> stage(const Staged& staged);

  // What is in memory, ascending.
  [[nodiscard]] std::vector<std::uint64_t> memory_steps() const;
  // The same, each with the attempt that it belongs to.
  [[nodiscard]] std::vector<std::pair<std::uint64_t, std::string>> memory_attempts() const;
  // Whether nothing above this step came to memory, also of what cannot be had from there any more.
  [[nodiscard]] bool is_newest(std::uint64_t step) const;
  // How many saves were handed over; and whether the first so many have come to memory or failed, and whether nothing
  // is to be written and committed of them any more but what waits for other ranks.
  [[nodiscard]] std::uint64_t taken() const;
  [[nodiscard]] bool is_encoded(std::uint64_t saves) const;
  [[nodiscard]] bool is_settled(std::uint64_t saves) const;
  // Whether a save of this step is to be stored, or waits for those of other ranks.
  [[nodiscard]] bool is_storing(std::uint64_t step) const;
  // Nothing to encode, to write or to commit; `ignore_uncommitted`: waiting for others' shards does not count.
  [[nodiscard]] bool is_idle(bool ignore_uncommitted) const;

  struct FetchResult {
    Fetched fetched;
    os::SharedMemory memory;
  };
  using FetchDone = std::function<void(Result<FetchResult>)>;
  // Behind what is being encoded; `done` is called on a thread of this rank.
  void fetch(const FetchRequest& request, FetchDone done);

  // Gives up what is not being encoded or written.
  void abandon();

  [[nodiscard]] RankReport report() const;

 private:
  enum class SlotState : std::uint8_t { free, queued, held };
  struct Slot {
    SlotState state = SlotState::free;
    std::uint64_t step = 0;  // of a held one, as the rest
    SnapshotId id;
    std::shared_ptr<restore::DecodedState> chunks;
    // The snapshot's file where the slot has all that it says: the state can be had without what it is coded against.
    std::shared_ptr<const store::Blob> file;
  };
  struct Arena {
    os::SharedMemory memory;
    std::uint64_t slot_bytes = 0;
    std::shared_ptr<const os::MappedMemory> mapping;  // kept by those that still read from it
  };
  // A save as it was handed over.
  struct Job {
    Staged staged;
    std::string attempt;  // of several ranks
    ConstByteSpan slot;
    std::shared_ptr<const os::MappedMemory> mapping;
    std::uint64_t number = 0;  // counted from 1
  };
  struct FetchJob {
    FetchRequest request;
    FetchDone done;
  };
  using Work = std::variant<Job, FetchJob>;
  // A save that is to be persisted: the encoder's until `is_encoded`, then the writer's.
  struct Publication {
    const Job job;
    std::shared_ptr<Store> store = nullptr;
    std::optional<store::PendingSave> save = std::nullopt;  // nullopt: the step is in the store already
    ProgressEvent event = {};
    bool is_encoded = false;  // guarded by `mutex_`
  };
  // A shard that is durable and waits for those of the others.
  struct Uncommitted {
    std::uint64_t step = 0;
    std::string attempt;
    ProgressEvent event;
  };

  // agent_rank.cpp
  void run_encoder();
  void run_writer();
  // Precondition of these: `mutex_` is held.
  [[nodiscard]] store::BaseCache::Limits memory_limits() const;
  void free_slot_locked(std::uint32_t slot);
  [[nodiscard]] bool is_encoded_locked(std::uint64_t saves) const;
  void tell(ProgressEvent event);
  // Precondition: the slot is still that of a save that is worked on. Once it is held it may be of another arena.
  [[nodiscard]] std::size_t slot_count() const;
  void free_slot(std::uint32_t slot);
  void fail_job(const Job& job, Error error);
  void note_error(const Error& error);

  // agent_encode.cpp
  void encode(const Job& job);
  // Waits until the writer has published the one before; nullptr if the rank ends.
  [[nodiscard]] Publication* begin_publication(const Job& job);
  // Gives it to the writer, or drops it where encoding failed.
  void end_encoding(Publication& publication, bool is_encoded, const ProgressEvent& event);
  // nullptr where the step is in the store already.
  [[nodiscard]] Result<std::shared_ptr<const store::Blob>> encode_for_store(const Job& job, const State& state,
                                                                            Publication& publication,
                                                                            ProgressEvent& event);
  [[nodiscard]] Result<std::shared_ptr<const store::Blob>> encode_for_memory(const Job& job, const State& state,
                                                                             ProgressEvent& event);
  // The newest snapshot in memory, as what the next may be coded against; nullptr where it may not.
  [[nodiscard]] std::shared_ptr<const Base> memory_base(ProgressEvent& event);
  // Keeps a snapshot in memory. Its slot is held from now on, or free. Reports the stage `memory`.
  [[nodiscard]] Result<void> keep(const Job& job, std::span<const ConstByteSpan> tensors,
                                  const std::shared_ptr<const store::Blob>& blob, ProgressEvent& event);
  void gather(FetchJob fetch);
  [[nodiscard]] Result<FetchResult> gather_step(const FetchRequest& request);
  struct SlotFile {
    std::uint32_t slot = 0;
    SnapshotId id;
    std::shared_ptr<const store::Blob> file;
  };
  // The slot that holds all of a step.
  [[nodiscard]] std::optional<SlotFile> slot_of(std::uint64_t step) const;

  // agent_publish.cpp
  void publish(Publication& publication);
  [[nodiscard]] Result<std::shared_ptr<Store>> open_store();
  // How a state for memory alone is coded.
  [[nodiscard]] CodingSettings memory_settings();
  void note(const Store& store);
  void commit_what_is_whole();
  void give_up_oldest();
  [[nodiscard]] bool was_committed(const Uncommitted& shard);
  void finish(const ProgressEvent& event, std::uint64_t step);
  void prune(std::uint64_t step);

  JobContext& job_;
  ProgressSink& sink_;
  const std::uint32_t rank_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::uint64_t trainer_ = 0;  // trainers that said hello, counted
  bool must_reopen_ = false;   // the store: there are other settings, or it failed
  WriteSettings settings_;
  std::uint64_t budget_bytes_ = 0;
  std::optional<Arena> arena_;
  std::vector<Slot> slots_;
  std::deque<Work> work_;
  bool is_encoding_ = false;
  std::uint64_t encoding_number_ = 0;  // of the save that is being encoded
  std::uint64_t taken_ = 0;
  bool is_committing_ = false;
  std::unique_ptr<Publication> publication_;  // the queue between the threads
  std::deque<Uncommitted> uncommitted_;       // changed by the writer alone
  RankReport totals_;
  std::uint32_t memory_snapshots_ = 1;
  std::optional<CodingSettings> remembered_;  // by the store, when it was opened last

  const std::unique_ptr<exec::Executor> executor_;
  const std::shared_ptr<store::BaseCache> cache_ = std::make_shared<store::BaseCache>();
  std::mutex store_mutex_;  // held while it is opened; never by who must not wait for a disk
  std::shared_ptr<Store> store_;

  std::thread writer_;
  std::thread encoder_;
};

}  // namespace bitsnap::engine
