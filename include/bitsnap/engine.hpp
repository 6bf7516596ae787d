// Saving without stalling: a trainer copies its state into memory that it shares with an agent, a process of its own
// that compresses, keeps and persists it, outlives the trainer, and gives the newest states back without touching a
// disk. docs/spec/engine.md.
//
// What fails in the background never ends a training: it is told by the save it happened to. No call waits longer than
// the limit it was given or that of the options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/settings.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap {

// What save() does while both slots of the arena are in use.
enum class WhenBusy : std::uint8_t {
  wait,  // until one is free, at most EngineOptions::wait_ms
  skip,  // does not save this step
};

struct EngineOptions {
  std::string path;  // of the store; made if there is none. The directory above it has to exist
  std::string job;   // 1 to 64 of A-Z a-z 0-9 . _ -; empty: made from the path. One agent serves one job on a node
  std::uint32_t rank = 0;  // of this process
  std::uint32_t world_size = 1;
  // What all ranks of this life of the job agreed upon, 1 to 48 of a-z 0-9 and -, different in every life; needed where
  // ranks are on several nodes. Empty: the agent tells lives apart, and serves all ranks.
  std::string session;
  CodingSettings settings = {};  // as in StoreOptions; the same for all ranks, as is `retention`
  Retention retention = {};      // applied after each checkpoint; without any rule, all are kept

  // The most memory for this rank: the arena, and compressed snapshots in the agent. 0: what the first state takes for
  // its slots and once more for compressed ones. Held against what the machine and the control group have left before
  // any of it is taken.
  std::uint64_t budget_bytes = 0;
  std::uint32_t slots = 2;             // 1: half the memory, and a save waits until the one before is encoded
  std::uint32_t memory_snapshots = 2;  // the newest so many are kept in memory, at least 1
  WhenBusy when_busy = WhenBusy::wait;
  std::uint64_t wait_ms = 600'000;   // the longest that any call waits where it was not told otherwise
  unsigned threads = 0;              // for copying; 0: all that this process may use
  unsigned agent_threads = 0;        // for compressing; 0: half of what this process may use
  std::uint64_t linger_ms = 60'000;  // how long an agent without trainers and work stays, with its memory
  std::string agent_program;         // the command bitsnap, which is the agent
  std::string agent_log;             // where the agent appends what it has to say; empty: nowhere
  // Asked now and then by whoever called and waits; true ends the call as `cancelled`, and nothing was taken over.
  std::function<bool()> interrupted = {};
  DecodeLimits limits = {};
};

// How far a save has come.
enum class SaveStage : std::uint8_t {
  skipped,    // nothing was free, and it was not to wait
  staged,     // copied: the state may change
  memory,     // compressed, and would survive the trainer
  persisted,  // committed in the store, and durable
  failed,     // will not come any further
};

[[nodiscard]] std::string_view save_stage_name(SaveStage stage) noexcept;

// What is known of one save.
struct SaveState {
  std::uint64_t ticket = 0;
  std::uint64_t step = 0;
  SaveStage stage = SaveStage::staged;
  bool persist = true;              // whether it is to come into the store
  bool has_reached_memory = false;  // also of one that failed afterwards
  std::optional<Error> error = {};  // of a failed one
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;          // 0 before `memory`
  std::optional<std::uint64_t> base = {};  // the step it is coded against
  double stall_seconds = 0;                // what save() took
  double wait_seconds = 0;                 // of it, for a free slot
  double encode_seconds = 0;
  double write_seconds = 0;

  // Whether nothing more is going to happen to it.
  [[nodiscard]] bool is_over() const noexcept {
    return stage == SaveStage::skipped || stage == SaveStage::failed || stage == SaveStage::persisted ||
           (stage == SaveStage::memory && !persist);
  }
};

// A step that can be restored.
struct RestorableStep {
  std::uint64_t step = 0;
  bool in_memory = false;   // this rank's state can be had from the agent
  bool everywhere = false;  // so can that of every rank, all of which are this agent's
  bool in_store = false;    // it is committed
  // Where it is in memory and there are several ranks: the attempt that this state is a part of. Only states of one
  // attempt are of one moment, and where the step is in the store, it is the one that was committed.
  std::string attempt = {};

  friend bool operator==(const RestorableStep&, const RestorableStep&) = default;
};

class Engine {
 public:
  // Finds the agent of the job, or starts one, and says hello. busy where this rank has a living trainer, or somebody
  // else the agent's name; invalid_argument where the job is another one under this name; not_found where there is no
  // program to start.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> attach(const EngineOptions& options);
  // Leaves; waits for nothing. In a forked child it does nothing.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Copies the state and returns; the state may change from then on. Waits for a free slot and, where the arena has to
  // be handed over, for the agent's answer. With `persist` it is going to be a checkpoint of the store, otherwise it is
  // for memory only. The result's stage is `staged` or `skipped`. An error means that nothing was taken over:
  // resource_exhausted for the budget or memory, busy where no slot became free in time, io where no agent can be
  // reached or started, invalid_argument for what no snapshot can hold and in a forked child.
  [[nodiscard]] Result<SaveState> save(std::uint64_t step, const State& state, bool persist = true);

  // What is known of a save; not_found for a ticket that never was, or is over and long past.
  [[nodiscard]] Result<SaveState> look(std::uint64_t ticket) const;
  // The same, once it has come as far as `stage`, or is over. busy where the time was over first.
  [[nodiscard]] Result<SaveState> wait(std::uint64_t ticket, SaveStage stage, std::uint64_t timeout_ms) const;
  // Until all saves are over.
  [[nodiscard]] Result<void> wait_all(std::uint64_t timeout_ms) const;
  // Saves that failed since this was asked last, oldest first.
  [[nodiscard]] std::vector<SaveState> take_failures();

  // What could be restored, ascending; waits for what the agent is encoding. Steps of a store that cannot be read are
  // left out.
  [[nodiscard]] Result<std::vector<RestorableStep>> steps() const;
  // The newest step that every rank can have: from memory where all are this agent's, or from the store. nullopt: none.
  // Ranks of several nodes see the same steps in their store, but not in each other's memory.
  [[nodiscard]] Result<std::optional<std::uint64_t>> newest_common_step() const;

  // This rank's state of a step: from the agent's memory, in which case it can be read after the agent has gone, and
  // chunks that still lie in the arena are copied in place of being decoded; or from the store. Of several ranks memory
  // gives only what is one state of all of them: the one that is in the store, or else that all of this agent's ranks
  // have, or whose `attempt` (RestorableStep::attempt) ranks that talk to each other found to be the same.
  struct Restored {
    std::shared_ptr<const Snapshot> snapshot;
    bool from_memory = false;
    std::optional<Error> memory_error = {};  // why it is not from memory although it should be
  };
  [[nodiscard]] Result<Restored> restore(std::uint64_t step, const std::string& attempt = {}) const;

  [[nodiscard]] const std::string& path() const noexcept;  // of the store, absolute, without links
  [[nodiscard]] const std::string& job() const noexcept;
  // 0 while there is no agent, and in a forked child.
  [[nodiscard]] std::int64_t agent_process() const noexcept;
  // Of the arena; 0 before the first save.
  [[nodiscard]] std::uint64_t arena_bytes() const noexcept;
  // Makes the arena ready for states of this size, so that the first save is as fast as all others: its pages are taken
  // now. The same errors as save().
  [[nodiscard]] Result<void> reserve(const State& state);

  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl) noexcept;

 private:
  std::unique_ptr<Impl> impl_;
};

struct AgentOptions {
  std::string job;
  // Without a hello in this time it ends.
  std::uint64_t hello_ms = 60'000;
  // Lets trainings go first: a nice value of 10, and the lowest priority for disks.
  bool lower_priority = true;
};

enum class AgentEnd : std::uint8_t {
  done,        // nobody needed it any more, or it was asked to end
  not_needed,  // there was one already
};

// The agent: serves until nobody needs it. For the main program of a process; handles SIGTERM and SIGINT, which make it
// finish what is staged, the second one at once.
[[nodiscard]] Result<AgentEnd> run_agent(const AgentOptions& options);

// What an agent says of itself, as JSON; docs/guide/engine.md. not_found where the job has no agent.
[[nodiscard]] Result<std::string> agent_report(const std::string& job, std::uint64_t timeout_ms);
// Ends an agent: once all that was staged is persisted, or, with `abandon`, as soon as what is being written is. busy
// where it has not ended in time.
[[nodiscard]] Result<void> stop_agent(const std::string& job, bool abandon, std::uint64_t timeout_ms);
// The job of a store whose trainers name none: the same for all spellings of its path, symbolic links among them.
[[nodiscard]] std::string default_job(const std::string& path);

}  // namespace bitsnap
