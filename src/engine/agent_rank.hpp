// The agent's work for one rank: it encodes the states that the trainer stages, keeps the snapshots in memory,
// publishes them to the store, and gives them back.
//
// An AgentRank owns two threads. The encoder thread turns each staged state into a snapshot file in memory, in the
// order of staging. The writer thread publishes the snapshots that go to the store: it writes, commits and prunes. At
// most one snapshot waits between the two, because it is the base of the next save to the store. Saves for memory only
// are encoded while one is published; behind a second save to the store, they wait with it.
//
// All public functions may be called from any thread, and none waits for a disk or an encoding. Both threads report to
// a ProgressSink.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/writer.hpp>

#include "engine/attempt_codings.hpp"
#include "engine/attempts.hpp"
#include "engine/messages.hpp"
#include "engine/publish_turns.hpp"
#include "engine/snapshot_frame.hpp"
#include "exec/executor.hpp"
#include "os/clock.hpp"
#include "os/file_system.hpp"
#include "os/shared_memory.hpp"
#include "restore/decoded_state.hpp"
#include "store/base_cache.hpp"
#include "store/pending_save.hpp"

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

// The training job that the agent serves: what its ranks share.
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
  Attempts attempts;
  PublishTurns publish_turns;
  std::mutex encode_gate;  // held while encoding: one rank at a time, with all threads
  AttemptCodings codings;  // used while `encode_gate` is held
};

[[nodiscard]] inline std::uint64_t elapsed_us(const os::Stopwatch& stopwatch) { return stopwatch.elapsed_ns() / 1000; }

// A save to the store that has ended. `kind`, `code` and `message` are those of its error; empty if it was persisted.
struct EndedSave {
  std::uint64_t step = 0;
  std::string stage;  // "persisted", "failed" or "skipped"
  std::string kind;
  std::string code;
  std::string message;
};

constexpr auto json_fields(std::type_identity<EndedSave>) {
  return std::array{json_field<&EndedSave::step>("step"), json_field<&EndedSave::stage>("stage"),
                    json_field<&EndedSave::kind>("kind"), json_field<&EndedSave::code>("code"),
                    json_field<&EndedSave::message>("message")};
}

// For status output and monitoring.
struct RankReport {
  std::uint64_t arena_bytes = 0;
  std::uint32_t slots = 0;
  std::uint64_t budget_bytes = 0;
  std::uint64_t memory_bytes = 0;  // compressed snapshots
  std::vector<std::uint64_t> memory_steps;
  std::size_t queued = 0;
  bool is_encoding = false;
  bool is_writing = false;
  std::size_t uncommitted = 0;  // shards that wait for the shards of other ranks
  std::uint64_t saves = 0;      // saves that reached memory
  std::uint64_t persisted = 0;
  std::uint64_t failed = 0;
  std::uint64_t skipped = 0;    // saves that were not committed, because not all ranks saved the step
  std::uint64_t raw_bytes = 0;  // of all encoded states, even if they did not fit in memory
  std::uint64_t stored_bytes = 0;
  std::uint64_t encode_us = 0;
  std::uint64_t write_us = 0;
  std::optional<std::uint64_t> last_persisted_step;
  std::string last_error;
  std::vector<EndedSave> ended;  // since the present trainer said hello, oldest first; only the newest ones
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
  // staged_count() counts the saves that were staged. reached(n): how far all of the first n saves have come.
  enum class Reached : std::uint8_t {
    staged,
    encoded,  // or failed
    settled,  // encoded, and none is being written or committed; shards that wait for other ranks do not count
  };
  [[nodiscard]] std::uint64_t staged_count() const;
  [[nodiscard]] Reached reached(std::uint64_t saves) const;
  // Whether a save of this step will be published, or its shard waits for the shards of other ranks.
  [[nodiscard]] bool is_storing(std::uint64_t step) const;
  // Whether nothing is left to encode, write or commit; with `ignore_uncommitted`, shards that wait for other ranks do
  // not count.
  [[nodiscard]] bool is_idle(bool ignore_uncommitted) const;

  struct FetchResult {
    Fetched fetched;
    os::SharedMemory memory;
  };
  using FetchDone = std::function<void(Result<FetchResult>)>;
  // Queued behind earlier saves and fetches. The encoder thread calls `done`, or the caller of abandon().
  void fetch(const FetchRequest& request, FetchDone done);

  // Later events belong to trainer 0, which is none, so that no trainer of another job takes them for its own.
  void retire();
  // Stores what memory has of the step, unless the store has the step. Queued behind earlier work. If it fails, an
  // event with kept_ticket() says why.
  void persist(const PersistRequest& request);
  // Whether nothing is left to do that this agent can do: shards that wait for other ranks do not count.
  [[nodiscard]] bool is_settled() const;
  // Whether this rank's shard of the step is stored, and waits for those of other ranks.
  [[nodiscard]] bool is_uncommitted(const PersistRequest& request) const;

  // Drops all saves and fetches that are not being encoded or published.
  void abandon();

  [[nodiscard]] RankReport report() const;

 private:
  enum class SlotState : std::uint8_t { free, queued, held };
  struct Slot {
    SlotState state = SlotState::free;
    std::uint64_t step = 0;  // of a queued or held slot; the members below are of a held slot
    SnapshotId id;
    std::string attempt = {};
    std::shared_ptr<restore::DecodedState> chunks = {};
    // Set if the slot holds the complete state. The state can then be restored without the payloads and bases.
    std::shared_ptr<const SnapshotFrame> frame = {};
    std::uint64_t raw_bytes = 0;
  };
  struct Arena {
    os::SharedMemory memory;
    std::uint64_t slot_bytes = 0;
    std::shared_ptr<const os::MappedMemory> mapping;  // shared with everything that still reads from it
  };
  // A save that the trainer has staged, from the queue until it is published or has failed.
  struct QueuedSave {
    Staged staged;
    std::string attempt;  // empty with one rank
    ConstByteSpan slot;
    std::shared_ptr<const os::MappedMemory> mapping;
    std::uint64_t number = 0;  // counted from 1
    std::uint64_t joined = 0;  // when it joined the attempt (Attempts::now)
  };
  struct QueuedFetch {
    FetchRequest request;
    FetchDone done;
  };
  using Work = std::variant<QueuedSave, QueuedFetch, PersistRequest>;
  // A save that goes to the store. The encoder thread owns it until `is_encoded`, then the writer thread.
  struct Publication {
    const QueuedSave queued;
    std::shared_ptr<Store> store = nullptr;
    std::optional<store::PendingSave> save = std::nullopt;  // nullopt: the step is in the store already
    ProgressEvent event = {};
    bool is_encoded = false;  // guarded by `mutex_`
  };
  // A durable shard that waits for the shards of other ranks.
  struct Uncommitted {
    std::uint64_t step = 0;
    std::string attempt;
    ProgressEvent event;
    std::uint64_t joined = 0;  // as in QueuedSave
    std::uint64_t since_ns = 0;
  };

  // agent_rank.cpp
  void run_encoder();
  void run_writer();
  // Precondition of the next six functions: `mutex_` is held.
  [[nodiscard]] store::BaseCache::Limits memory_limits() const;
  void free_slot_locked(std::uint32_t slot);
  // Without telling the trainer.
  void empty_slot_locked(std::uint32_t slot);
  void fail_save_locked(std::uint64_t ticket, std::uint64_t step, Error error, bool is_skip = false,
                        bool is_for_store = true);
  void tell(ProgressEvent event);
  void note_ended_locked(std::uint64_t step, std::string_view stage, const Error* error);
  // Precondition of the next two functions: the slot's save is being encoded. Later, the slot may belong to another
  // arena.
  [[nodiscard]] std::size_t slot_count() const;
  void free_slot(std::uint32_t slot);
  void fail_save(const QueuedSave& queued, Error error);
  void set_last_error(const Error& error);

  // agent_encode.cpp
  void encode(const QueuedSave& queued);
  // Waits until the writer thread has published the previous save; nullptr if the rank ends.
  [[nodiscard]] Publication* begin_publication(const QueuedSave& queued);
  // Begins the save in the store. The gate is locked while the lock that it returns lives.
  [[nodiscard]] Result<std::unique_lock<std::mutex>> begin_encoding(Publication& publication);
  void note_encoded(const store::PendingSave& save, ProgressEvent& event);
  // Hands the save to the writer thread, or drops it if encoding failed.
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
  [[nodiscard]] std::shared_ptr<const Base> memory_base(ProgressEvent& event);
  // Keeps a snapshot in memory, and holds or frees its slot. Reports the stage `memory`.
  [[nodiscard]] Result<void> keep(const QueuedSave& queued, const Encoded& encoded, ProgressEvent& event);
  [[nodiscard]] Result<FetchResult> gather_step(const FetchRequest& request);
  struct HeldState {
    std::uint32_t slot = 0;
    SnapshotId id;
    std::string attempt;
    std::shared_ptr<const SnapshotFrame> frame;
    std::uint64_t raw_bytes = 0;
    ConstByteSpan bytes;
    std::shared_ptr<const os::MappedMemory> mapping;  // has the bytes, also if the trainer brings another arena
  };
  // The held slot with the complete state of a step.
  [[nodiscard]] std::optional<HeldState> slot_of(std::uint64_t step) const;

  // agent_persist.cpp
  void persist_kept(const PersistRequest& request);
  // Returns whether there is anything to publish.
  [[nodiscard]] Result<bool> encode_kept(const PersistRequest& request, Publication& publication, ProgressEvent& event);

  // agent_memory.cpp
  // Gives back memory that a restore of `step` does not need.
  void give_back_beside(std::uint64_t step);
  // Gives back the snapshots that are in the store, and, if `step` is there, the slot that holds it.
  void give_back_stored(std::uint64_t step, const std::string& attempt);
  [[nodiscard]] bool is_in_store(std::uint64_t step, const std::string& attempt) const;

  // agent_publish.cpp
  void publish(Publication& publication);
  void commit_complete_attempts();
  // Whether the store has, or had, the step by this attempt, or by another one.
  [[nodiscard]] bool was_committed(const Uncommitted& shard);
  [[nodiscard]] bool has_other_attempt(const Uncommitted& shard) const;
  // The error of a shard that is not committed because another job commits to the same store; nullopt: none does.
  [[nodiscard]] std::optional<Error> other_job_error(const Store& store, const Uncommitted& shard) const;
  void finish(const ProgressEvent& event, std::uint64_t step);
  void prune(std::uint64_t step);
  // What the trainer's caller has removed.
  void remove_rotated();
  [[nodiscard]] Result<std::shared_ptr<Store>> open_store();
  void remember_settings(const Store& store);
  // The settings for a save for memory only.
  [[nodiscard]] CodingSettings memory_settings();
  // Whether the trainer stated a budget of memory.
  [[nodiscard]] bool is_budget_given() const;

  Job& job_;
  ProgressSink& sink_;
  const std::uint32_t rank_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::uint64_t trainer_ = 0;  // number of trainers that have said hello
  bool must_reopen_ = false;   // the settings changed or the store handle failed
  WriteSettings settings_;
  bool is_rotated_ = false;          // the retention comes from rotate(): it removes nothing
  std::set<std::uint64_t> removed_;  // by rotate(), and not from the store yet
  std::uint64_t budget_bytes_ = 0;
  std::uint64_t tensors_ = 0;  // of the newest state
  std::optional<Arena> arena_;
  std::vector<Slot> slots_;
  std::deque<Work> work_;
  std::optional<std::uint64_t> encoding_;  // number of the save that is being encoded; UINT64_MAX for other work
  std::uint64_t taken_ = 0;
  bool is_committing_ = false;
  std::unique_ptr<Publication> publication_;  // from the encoder thread to the writer thread
  std::deque<Uncommitted> uncommitted_;       // only the writer thread changes it
  RankReport totals_;
  std::uint32_t memory_snapshots_ = 1;
  std::optional<CodingSettings> remembered_;  // the store's settings when it was opened last

  const std::unique_ptr<exec::Executor> executor_;
  const std::shared_ptr<store::BaseCache> cache_ = std::make_shared<store::BaseCache>();
  std::mutex store_mutex_;  // held while the store is opened; only the rank's two threads take it
  std::shared_ptr<Store> store_;

  std::thread writer_;
  std::thread encoder_;
};

}  // namespace bitsnap::engine
