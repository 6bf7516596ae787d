// The agent of one job: a loop that answers requests and decides when the agent ends. The agent owns the connections
// (AgentConnections) and the ranks.
//
// run() and all functions that it calls belong to one thread, the loop thread; tell(), wake() and end() may be called
// from any thread. The threads of the ranks do the slow work and wake the loop.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <bitsnap/engine.hpp>

#include "engine/agent_connections.hpp"
#include "engine/agent_rank.hpp"
#include "engine/messages.hpp"
#include "engine/step_decisions.hpp"
#include "os/file_system.hpp"
#include "os/signal_watch.hpp"

namespace bitsnap::engine {

// Added to the niceness of the threads that compress, while no trainer waits for them.
inline constexpr int kNicer = 10;

// The memory of an earlier job, for status output and monitoring.
struct EarlierReport {
  std::uint32_t world_size = 0;
  std::uint64_t arena_bytes = 0;
  std::uint64_t memory_bytes = 0;           // compressed snapshots of all ranks
  std::vector<std::uint64_t> memory_steps;  // those of any rank, ascending
};

constexpr auto json_fields(std::type_identity<EarlierReport>) {
  return std::array{json_field<&EarlierReport::world_size>("world_size"),
                    json_field<&EarlierReport::arena_bytes>("arena_bytes"),
                    json_field<&EarlierReport::memory_bytes>("memory_bytes"),
                    json_field<&EarlierReport::memory_steps>("memory_steps")};
}

class Agent final : public ProgressSink, private ConnectionHandler {
 public:
  // Starts to listen; busy if the job has an agent already.
  [[nodiscard]] static Result<std::unique_ptr<Agent>> start(const RunAgentOptions& options, os::FileSystem& files);
  ~Agent() override;

  // Runs until the job has ended or the agent is stopped.
  [[nodiscard]] Result<void> run();
  // Makes run() return; saves that are not being encoded or published are dropped. May be called from any thread.
  void end() noexcept;

  void tell(std::uint32_t rank, std::uint64_t trainer, ProgressEvent event) override;
  void wake() override;

 private:
  // A `list` request that waits for the saves that were staged before it.
  struct WaitingList : Request {
    std::uint32_t rank = 0;
    std::uint64_t deadline_ns = 0;
    bool is_counted = false;
    std::map<std::uint32_t, std::uint64_t> taken = {};  // the saves that each rank had staged; valid if `is_counted`
  };
  // A job that the agent serves, or served: its ranks, which have its states in memory.
  struct ServedJob {
    Hello first;  // the first hello, but with the session of the last restart
    std::unique_ptr<Job> job;
    std::map<std::uint32_t, std::unique_ptr<AgentRank>> ranks = {};
  };
  // A step in memory that is being stored.
  struct Persisting {
    PersistRequest request;
    bool is_earlier = false;     // of the earlier job
    std::uint64_t since_ns = 0;  // when the last shard was still being written
    std::optional<Error> error = {};
    std::vector<Request> asked = {};  // who waits for it
  };
  // Whether the agent is to end, and how.
  struct Ending {
    bool is_told_to_stop = false;
    bool is_told_to_abandon = false;
    bool is_abandoning = false;  // also gives up shards that wait for other ranks
    std::optional<std::uint64_t> since_ns = {};
    std::vector<Request> asked = {};  // who waits for it
  };
  // The result of a fetch, on its way from a thread of a rank to the loop.
  struct Fetch : Request {
    Result<FetchResult> result;
  };
  struct Told {
    std::uint32_t rank = 0;
    std::uint64_t trainer = 0;
    ProgressEvent event;
  };
  struct Inbox {
    std::vector<Told> events;
    std::vector<Fetch> fetches;
  };

  Agent(const RunAgentOptions& options, os::FileSystem& files, os::LocalListener listener, os::EventSignal woken);

  // Begins to end after a signal or a `stop` request. Receives first what trainers sent before.
  void stop_as_told();
  [[nodiscard]] Result<void> handle(std::uint64_t token, const Packet& packet,
                                    std::vector<os::Descriptor>& descriptors) override;
  void on_closed(std::uint64_t token, const AgentConnection& connection) override;
  void take_inbox();
  void answer_lists();
  void count_staged();
  // Whether the saves that the list waits for can no longer change which step is the newest that all ranks have.
  [[nodiscard]] bool is_ready(const WaitingList& list) const;
  // agent_requests.cpp
  [[nodiscard]] Result<void> on_hello(std::uint64_t token, const Packet& packet);
  [[nodiscard]] tl::unexpected<Error> ending_error() const;
  [[nodiscard]] Result<void> check_job(const Hello& hello) const;
  [[nodiscard]] Result<void> on_request(const Request& asked, std::uint32_t number, const Packet& packet,
                                        std::vector<os::Descriptor>& descriptors);
  // Whether the ranks of this agent save the step, of which `rank` asks.
  [[nodiscard]] bool decide(std::uint32_t rank, const DecideRequest& request);
  // busy if the connection has too many requests without an answer that it has read.
  [[nodiscard]] Result<void> check_owed(std::uint64_t token) const;
  [[nodiscard]] Result<void> on_fetch(const Request& asked, AgentRank& rank, const Packet& packet);
  [[nodiscard]] Result<void> on_hurry(std::uint64_t token, const Packet& packet);
  // Compresses at the priority of the trainers while one of them waits.
  void set_urgency();
  // As JSON, for people and monitoring. docs/guide/engine.md lists the keys.
  [[nodiscard]] std::string report() const;
  // agent_earlier.cpp
  // The present job has ended, and one with another world size begins.
  void begin_other_job(std::uint32_t world_size);
  [[nodiscard]] Result<void> on_persist(const Request& asked, const PersistRequest& request);
  // Answers `persist` requests when the work for them has ended.
  void settle_persist();
  // Gives the memory of the earlier job back, unless it is being stored.
  void drop_earlier();
  [[nodiscard]] std::optional<EarlierReport> report_earlier() const;
  // The steps of the earlier job in memory, ascending.
  [[nodiscard]] std::vector<MemoryStep> earlier_steps() const;
  [[nodiscard]] StepList step_list(std::uint32_t rank) const;

  [[nodiscard]] bool is_idle(bool ignore_uncommitted) const;
  // How long the loop may wait, in milliseconds; nullopt if the agent ends.
  [[nodiscard]] std::optional<std::int64_t> time_left();

  const RunAgentOptions options_;
  os::FileSystem& files_;
  const os::EventSignal woken_;
  const std::uint64_t started_ns_;
  AgentConnections connections_;
  std::vector<WaitingList> lists_;
  Ending ending_;
  std::uint64_t last_trainer_ns_;  // when a trainer was last connected or work was left
  std::uint64_t linger_ms_;

  std::atomic<bool> is_ended_ = false;
  std::mutex inbox_mutex_;
  Inbox inbox_;

  std::optional<ServedJob> present_;  // set by the first hello
  // A job with another world size that the present trainers follow. Its states stay in memory until its present
  // followers give their first arena or need the memory: they may ask for one step to be stored.
  std::optional<ServedJob> earlier_;
  std::optional<MemoryStep> dropped_;  // the newest of the steps that an earlier job had in memory
  std::optional<Persisting> persisting_;
  StepDecisions decisions_;
};

}  // namespace bitsnap::engine
