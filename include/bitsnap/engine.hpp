// Saving without stalling. A trainer copies its state into memory that it shares with an agent: a separate process that
// compresses the state, keeps it in memory, commits it to a store, and outlives the trainer. After a restart the
// trainer gets the newest states from the agent's memory, without reading a disk. docs/spec/engine.md.
//
// A failure in the background never ends a training: the SaveState of the save reports it. No call waits longer than
// its timeout or EngineOptions::timeout_ms. An Engine may be used by several threads; save() and restore() take turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/settings.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap {

// Which job a trainer belongs to, and its place in it.
struct JobOptions {
  std::string name;        // 1 to 64 of A-Z a-z 0-9 . _ -; empty: made from the path. A job has one agent on a node
  std::uint32_t rank = 0;  // of this process, below world_size
  std::uint32_t world_size = 1;
  // Names one start of the job: the same for all its ranks, different after every restart, 1 to 48 of a-z 0-9 and -.
  // Needed when ranks are on several nodes. Empty: one agent serves all ranks, and sees restarts itself.
  std::string session;
};

// What save() does while both slots of the arena are in use.
enum class WhenBusy : std::uint8_t {
  wait,  // waits until one is free, at most EngineOptions::timeout_ms
  skip,  // returns at once; this step is not saved
};

// How much memory checkpoints may take, and what save() does if none is free.
struct MemoryOptions {
  // Limit for the memory of this rank: the arena, the compressed snapshots in the agent, also those that are being
  // written, and 2 KiB for each tensor. 0: `slots` times the first state, and its size once more for compressed
  // snapshots. Checked against the free memory of the machine and of the control group before any is allocated. If
  // there is not enough memory, the arena gets one slot; then memory keeps no snapshots, and the agent compresses
  // straight to the store; then save() fails.
  std::uint64_t budget_bytes = 0;
  std::uint32_t slots = 2;      // 1 halves the arena; each save then waits until the one before is encoded
  std::uint32_t snapshots = 2;  // how many of the newest stay in memory, at least 1
  WhenBusy when_busy = WhenBusy::wait;
};

// The agent: the process that compresses and writes the states.
struct AgentOptions {
  unsigned threads = 0;              // for compressing; 0: half of what this process may use
  std::string command;               // path of the program bitsnap, which the agent runs
  std::string log;                   // file that the agent appends its messages to; empty: none
  std::uint64_t linger_ms = 60'000;  // how long an agent without trainers and work keeps running, with its memory
  // That the agent sends to an object store each second, at most; 0: no limit.
  std::uint64_t upload_bytes_per_second = 0;
};

struct EngineOptions {
  std::string path;  // of the store; created if it does not exist, in a directory that must exist
  JobOptions job = {};
  CodingSettings settings = {};  // as in StoreOptions; the same for all ranks, as is `retention`
  Retention retention = {};      // applied after each checkpoint; without any rule, all are kept
  MemoryOptions memory = {};
  AgentOptions agent = {};
  std::uint64_t timeout_ms = 600'000;  // of calls that have none of their own
  unsigned threads = 0;                // for copying; 0: all that this process may use
  // Called now and then on the thread of a call that waits. If it returns true, the call ends as `cancelled`, and
  // nothing was saved.
  std::function<bool()> interrupted = {};
  DecodeLimits limits = {};
};

// How far a save has come.
enum class SaveStage : std::uint8_t {
  skipped,    // a rank had no free slot and skips (WhenBusy::skip), or not all ranks saved the step
  staged,     // copied: the caller may change the state
  memory,     // compressed in the agent: it survives the trainer
  persisted,  // committed to the store: it survives the machine
  failed,     // SaveState::error says why
};

[[nodiscard]] std::string_view save_stage_name(SaveStage stage) noexcept;

// What is known of one save.
struct SaveState {
  std::uint64_t ticket = 0;
  std::uint64_t step = 0;
  SaveStage stage = SaveStage::staged;
  bool persist = true;              // false: for memory only
  bool has_reached_memory = false;  // stays true if the save fails later
  std::optional<Error> error = {};  // set if the save failed
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;          // 0 before `memory`
  std::optional<std::uint64_t> base = {};  // the step that it is coded against
  double stall_seconds = 0;                // duration of save()
  double wait_seconds = 0;                 // part of stall_seconds: waiting for a free slot
  double encode_seconds = 0;
  double write_seconds = 0;

  // Whether the save has reached its last stage.
  [[nodiscard]] bool is_over() const noexcept {
    return stage == SaveStage::skipped || stage == SaveStage::failed || stage == SaveStage::persisted ||
           (stage == SaveStage::memory && !persist);
  }
};

// A step that can be restored, or that was dropped.
struct RestorableStep {
  std::uint64_t step = 0;
  bool in_memory = false;   // the agent has this rank's state
  bool everywhere = false;  // the agent has the states of all ranks of the job
  bool in_store = false;    // the store has the checkpoint
  // Of a state in memory, if there are several ranks: the attempt that it belongs to. Only states of one attempt belong
  // together. If the step is in the store, it is the committed attempt.
  std::string attempt = {};
  // Not 0: this number of ranks saved the step, to the memory of the agent that now serves another number of ranks. If
  // the agents of the job have the states of all of them, Engine::persist_earlier() makes a checkpoint of them.
  std::uint32_t earlier_ranks = 0;
  std::vector<std::uint32_t> held_ranks = {};  // those whose states this agent has; none after it has dropped them

  friend bool operator==(const RestorableStep&, const RestorableStep&) = default;
};

class Engine {
 public:
  // Connects to the agent of the job, and starts one if there is none. busy if this rank has a living trainer, or
  // if the agent has not answered for 30 seconds because it is frozen; invalid_argument if a job of this name has other
  // settings or another store; not_found if `agent.command` does not exist. Opens the store first, creates it if it
  // does not exist, and fails as Store::open() does, but not because of another writer or of a disk that is full or
  // mounted read-only: these may pass, and until then saves fail and states stay in memory.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> attach(const EngineOptions& options);
  // Disconnects; waits for nothing. In a forked child it does nothing.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Copies the state and returns; the caller may then change it. Waits for a free slot; the first save, and one of a
  // larger state, also waits for the agent to map the arena. With `persist` the state becomes a checkpoint of the
  // store, otherwise it stays in memory. The stage of the result is `staged` or `skipped`. After an error nothing was
  // saved: resource_exhausted: budget or memory; busy: no slot became free in time; io: no agent can be reached or
  // started; invalid_argument: a state that no snapshot can hold, or a forked child.
  [[nodiscard]] Result<SaveState> save(std::uint64_t step, const State& state, bool persist = true);

  // The present state of a save; not_found for an unknown ticket, or for a save that ended long ago.
  [[nodiscard]] Result<SaveState> look(std::uint64_t ticket) const;
  // Waits until the save reaches `stage` or ends; busy after the timeout. Meanwhile the agent compresses with the
  // priority of the training, unless `is_urgent` is false, as for a thread that only watches.
  [[nodiscard]] Result<SaveState> wait(std::uint64_t ticket, SaveStage stage, std::uint64_t timeout_ms,
                                       bool is_urgent = true) const;
  // Waits until all saves have ended; busy after the timeout.
  [[nodiscard]] Result<void> wait_all(std::uint64_t timeout_ms) const;
  // The saves that failed since the last call, oldest first.
  [[nodiscard]] std::vector<SaveState> take_failures();

  // The steps that can be restored, ascending; waits for the save that the agent is encoding. Without those of the
  // store if it cannot be read.
  // Without a timeout, it is EngineOptions::timeout_ms.
  [[nodiscard]] Result<std::vector<RestorableStep>> steps(std::optional<std::uint64_t> timeout_ms = {}) const;
  // The newest step that every rank can restore: from memory if the agent has the states of all ranks, or from the
  // store. nullopt: none. Ranks on different nodes see the same steps in the store, but not each other's memory.
  [[nodiscard]] Result<std::optional<std::uint64_t>> latest() const;

  // For callers that remove checkpoints themselves, as frameworks do that rotate them: the agent codes new ones for a
  // retention of `keep_last` (nullopt: all), removes the steps `removed` when it has committed what it has, and no
  // others. Called before each save, because an agent that is started anew does not know it. The newest step of the
  // store and steps that it does not have are ignored. Returns false if no agent was told: there is none, or it is of
  // an older version. Waits for nothing.
  [[nodiscard]] bool rotate(std::span<const std::uint64_t> removed, std::optional<std::uint64_t> keep_last) const;

  // Makes this node's part of a checkpoint of a step that only memory has, saved by this number of ranks or by another
  // one: the agent stores the states that it has of the attempt, as their trainers would have. The checkpoint is
  // committed when the states of all ranks that saved the step are stored, so one rank on each node calls this, or all
  // of them. Waits for it; without a timeout, EngineOptions::timeout_ms. The agent drops the states of another number
  // of ranks when this job gives it an arena, and when it has committed the newest of them. not_found if it has none of
  // this step.
  [[nodiscard]] Result<void> persist_earlier(std::uint64_t step, const std::string& attempt,
                                             std::optional<std::uint64_t> timeout_ms = {}) const;

  // This rank's state of a step, from the agent's memory or else from the store. A state from memory stays readable
  // after the agent has ended; chunks that are still in the arena are copied instead of decoded. If there are several
  // ranks, a state from memory belongs to the same attempt as those of the other ranks: to the attempt in the store, or
  // to one that all ranks of the agent have, or to `attempt` (RestorableStep::attempt), on which the ranks agreed. If
  // the agent does not answer within the timeout, without one EngineOptions::timeout_ms, the store is read.
  struct Restored {
    std::shared_ptr<const Snapshot> snapshot;
    bool from_memory = false;
    std::optional<Error> memory_error = {};  // why a state in memory could not be used
  };
  // `in_place`: the caller has memory for the state. Otherwise the call makes sure that the system has as much memory
  // as the state needs: the agent gives back what a restore does not need, and then the state is read from the store.
  // resource_exhausted if there is too little memory even so.
  [[nodiscard]] Result<Restored> restore(std::uint64_t step, const std::string& attempt = {},
                                         std::optional<std::uint64_t> timeout_ms = {}, bool in_place = false) const;

  [[nodiscard]] const std::string& path() const noexcept;  // of the store, absolute, without links
  [[nodiscard]] const std::string& job() const noexcept;
  // Process id of the agent; 0 without an agent, and in a forked child.
  [[nodiscard]] std::int64_t agent_process() const noexcept;
  // Size of the arena; 0 before the first save.
  [[nodiscard]] std::uint64_t arena_bytes() const noexcept;
  // Why the arena has fewer slots than the options say, with the figures; empty: it has as many, or there is none.
  [[nodiscard]] std::string memory_note() const;
  // Allocates the arena for states of this size and touches its pages, so that the first save is as fast as later ones.
  // The same errors as save().
  [[nodiscard]] Result<void> reserve(const State& state);

  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl) noexcept;

 private:
  std::unique_ptr<Impl> impl_;
};

struct RunAgentOptions {
  std::string job;
  std::uint64_t hello_ms = 60'000;  // the agent ends if no trainer connects within this time
  // Compresses with a nice value of 10, unless a trainer waits for a slot, and runs with the lowest I/O priority, so
  // that trainings come first.
  bool lower_priority = true;
};

enum class AgentEnd : std::uint8_t {
  done,        // the job has ended, or the agent was told to stop
  not_needed,  // the job had an agent already
};

// Runs an agent until its job has ended. For the main program of a process: it handles SIGTERM and SIGINT. The first
// signal makes it finish the staged saves and end; the second one makes it end at once.
[[nodiscard]] Result<AgentEnd> run_agent(const RunAgentOptions& options);

// The status of an agent as JSON (docs/guide/engine.md). not_found if the job has no agent.
[[nodiscard]] Result<std::string> agent_status(const std::string& job, std::uint64_t timeout_ms);
// Stops an agent when all staged saves are persisted; with `abandon`, when the one being written is. busy after the
// timeout.
[[nodiscard]] Result<void> stop_agent(const std::string& job, bool abandon, std::uint64_t timeout_ms);
// The name of a job without one: the same for all paths that lead to the same store, also through symbolic links.
[[nodiscard]] std::string default_job(const std::string& path);

}  // namespace bitsnap
