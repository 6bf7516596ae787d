// The agent's one loop: who connects, what they ask for, who has died, and when it is time to go.
//
// One thread; what takes time is done by the threads of the ranks, which wake it. Nothing that a connection sends or
// leaves undone keeps it from the others: messages are bounded, sending never waits, and what a connection does not
// take in is given up with it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/engine.hpp>

#include "engine/agent_rank.hpp"
#include "engine/messages.hpp"
#include "engine/packet.hpp"
#include "os/file_system.hpp"
#include "os/local_socket.hpp"
#include "os/poll_set.hpp"
#include "os/process_watch.hpp"
#include "os/signal_watch.hpp"

namespace bitsnap::engine {

class Agent final : public ProgressSink {
 public:
  // Listens from now on. busy where there is an agent of this job.
  [[nodiscard]] static Result<std::unique_ptr<Agent>> start(const AgentOptions& options, os::FileSystem& files);
  ~Agent() override;

  // Until nobody needs it.
  [[nodiscard]] Result<void> run();
  // Makes run() give up what is not being encoded or written, and return. From any thread.
  void end() noexcept;

  void tell(std::uint32_t rank, std::uint64_t trainer, ProgressEvent event) override;
  void wake() override;

 private:
  struct Outgoing {
    std::vector<std::byte> bytes;
    std::optional<os::Descriptor> descriptor;
  };
  // One who is connected.
  struct Connection {
    os::LocalConnection socket;
    os::ProcessWatch watch;
    std::optional<std::uint32_t> rank = {};
    std::uint64_t trainer = 0;  // of the rank
    WriteSettings settings = {};
    std::deque<Outgoing> outgoing = {};
    std::size_t fetching = 0;  // what it asked for and is not ready
    bool is_deaf = false;      // nothing reaches it any more; what it said before still counts
  };
  // A list that waits for what was staged before it.
  struct WaitingList {
    std::uint64_t connection = 0;
    std::uint32_t number = 0;
    std::uint32_t rank = 0;
    std::uint64_t deadline_ns = 0;
    bool is_counted = false;
    std::map<std::uint32_t, std::uint64_t> taken = {};  // by each rank, once counted
  };
  struct WaitingStop {
    std::uint64_t connection = 0;
    std::uint32_t number = 0;
  };
  // What a thread of a rank has for the loop.
  struct Fetch {
    std::uint64_t connection = 0;
    std::uint32_t number = 0;
    Result<AgentRank::FetchResult> result;
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

  Agent(const AgentOptions& options, os::FileSystem& files, os::LocalListener listener, os::EventSignal woken);

  void accept_some();
  // Makes room by closing the one that has said nothing of himself for longest; false where there is none.
  bool close_oldest_stranger();
  void serve(std::uint64_t token, const os::PollEvent& event);
  void receive_from(std::uint64_t token, std::size_t most);
  // All that trainers have said so far, of all but one.
  void receive_from_trainers(std::uint64_t but = 0);
  // Ends it in order, or soon, if that was asked for. What was staged before still counts.
  void stop_as_told();
  void abandon();
  void handle(std::uint64_t token, const Packet& packet, std::vector<os::Descriptor> descriptors);
  void close(std::uint64_t token);
  void take_inbox();
  void answer_lists();
  void count_staged();
  // Whether what was staged before, by any rank, changes nothing any more of what all ranks can have.
  [[nodiscard]] bool is_ready(const WaitingList& list) const;
  // agent_requests.cpp
  [[nodiscard]] Result<void> on_hello(std::uint64_t token, const Packet& packet);
  [[nodiscard]] tl::unexpected<Error> ending_error() const;
  [[nodiscard]] Result<void> check_job(const Hello& hello) const;
  void close_ended(std::uint64_t but);
  [[nodiscard]] Result<void> on_request(std::uint64_t token, const Packet& packet,
                                        std::vector<os::Descriptor>& descriptors);
  // busy for one who asks and asks, and takes in nothing.
  [[nodiscard]] Result<void> check_owed(std::uint64_t token) const;
  [[nodiscard]] Result<void> on_report(std::uint64_t token, std::uint32_t number);
  [[nodiscard]] Json report() const;
  [[nodiscard]] StepList step_list(std::uint32_t rank) const;

  void reply(std::uint64_t token, MessageKind kind, std::uint32_t number, Json body,
             std::optional<os::Descriptor> descriptor = std::nullopt);
  // With the text in memory of its own, however long it is.
  void reply_text(std::uint64_t token, MessageKind kind, std::uint32_t number, std::string_view text);
  // As much as goes without waiting. A connection that nothing reaches any more becomes deaf, and hears that it is.
  static void flush(Connection& connection);
  void watch_connection(std::uint64_t token, const Connection& connection);
  [[nodiscard]] bool is_idle(bool ignore_uncommitted) const;
  [[nodiscard]] bool has_trainers() const;
  // How long the loop may wait; nullopt: it is time to go.
  [[nodiscard]] std::optional<std::int64_t> time_left();

  const AgentOptions options_;
  os::FileSystem& files_;
  os::LocalListener listener_;
  const os::EventSignal woken_;
  os::PollSet waiting_;
  const std::uint64_t started_ns_;

  std::uint64_t last_token_ = 0;
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::vector<WaitingList> lists_;
  std::vector<WaitingStop> stops_;
  std::optional<std::uint64_t> stopping_since_ns_;
  bool is_told_to_stop_ = false;
  bool is_told_to_abandon_ = false;
  bool is_abandoning_ = false;     // what waits for others' shards, too
  std::uint64_t last_trainer_ns_;  // when one was connected, or there was something to do
  std::uint64_t linger_ms_;

  std::atomic<bool> is_ended_ = false;
  std::mutex inbox_mutex_;
  Inbox inbox_;

  // Made by the first hello.
  std::optional<Hello> first_;
  std::unique_ptr<JobContext> job_;
  std::map<std::uint32_t, std::unique_ptr<AgentRank>> ranks_;
};

}  // namespace bitsnap::engine
