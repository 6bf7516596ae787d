// A trainer's connection to its agent: sends requests, and receives answers and progress events.
//
// The link owns a thread that receives. Any thread may send requests. When the connection closes or the agent dies, the
// link is lost for good: all waiting calls get the error, and the trainer opens a new link. Not for use in a forked
// child.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <bitsnap/error.hpp>

#include "engine/messages.hpp"
#include "engine/packet.hpp"
#include "os/local_socket.hpp"
#include "os/poll_set.hpp"
#include "os/process_start.hpp"
#include "os/process_watch.hpp"

namespace bitsnap::engine {

[[nodiscard]] inline std::chrono::steady_clock::time_point deadline_in(std::uint64_t milliseconds) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_of(milliseconds));
}

// 0 if the deadline has passed.
[[nodiscard]] inline std::int64_t milliseconds_until(std::chrono::steady_clock::time_point deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return std::max<std::int64_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count(), 0);
}

// How long a trainer waits for an answer that an agent gives at once, whatever else it does. Beyond that, the agent is
// frozen.
inline constexpr std::int64_t kPromptMs = 30'000;

// Called now and then during a wait. If it returns true, the wait ends as `cancelled`. May be empty.
using Interrupted = std::function<bool()>;
[[nodiscard]] Result<void> check_interrupt(const Interrupted& interrupted);

// Connects to the agent of this user's job: not_found if there is none.
[[nodiscard]] Result<os::LocalConnection> connect_to_agent(const std::string& job, std::int64_t timeout_ms);

// The same, but starts an agent if there is none. `program` is the command with its arguments. busy after the timeout,
// or if the agent accepts no connection for kPromptMs.
[[nodiscard]] Result<os::LocalConnection> connect_or_start(const std::string& job, const os::DetachedProgram& program,
                                                           std::int64_t timeout_ms,
                                                           const Interrupted& interrupted = {});

class AgentLink {
 public:
  // The callbacks run on the receiving thread and must not send requests.
  using OnProgress = std::function<void(const ProgressEvent& event)>;
  using OnLost = std::function<void(const Error& error)>;

  struct Answer {
    Packet packet;
    std::vector<os::Descriptor> descriptors;
  };
  using OnAnswer = std::function<void(const Result<Answer>& answer)>;

  [[nodiscard]] static Result<std::unique_ptr<AgentLink>> open(os::LocalConnection connection, OnProgress on_progress,
                                                               OnLost on_lost);
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  // Sends a request and waits for an answer of the kind `expected`. Errors: the error of a refusal; io if the link is
  // lost or sending failed; busy after the timeout; cancelled. A late answer is dropped.
  [[nodiscard]] Result<Answer> call(MessageKind kind, std::string body, MessageKind expected, std::int64_t timeout_ms,
                                    std::span<const int> descriptors = {}, const Interrupted& interrupted = {});
  // Sends a request without waiting. `on_answer` gets the answer or the error, but is never called if the link is lost
  // first. If request() returns an error, nothing was sent.
  [[nodiscard]] Result<void> request(MessageKind kind, std::string body, MessageKind expected, OnAnswer on_answer);
  // Tries to send a message that has no answer.
  void post(MessageKind kind, std::string body = "{}");

  [[nodiscard]] bool is_lost() const;
  [[nodiscard]] std::int64_t agent_process() const noexcept { return watch_.process(); }

 private:
  AgentLink(os::LocalConnection connection, os::ProcessWatch watch, os::EventSignal ending, OnProgress on_progress,
            OnLost on_lost);
  void receive_all();
  // An error ends the link.
  [[nodiscard]] Result<void> receive_one();
  // Sends a request with this number; io if that failed.
  [[nodiscard]] Result<void> send(MessageKind kind, std::uint32_t number, std::string body,
                                  std::span<const int> descriptors, std::int64_t timeout_ms);
  // A number that no pending request has. Precondition: `mutex_` is held.
  [[nodiscard]] std::uint32_t next_number();
  [[nodiscard]] Result<Answer> checked(Answer answer, MessageKind asked, MessageKind expected) const;
  void lose(const Error& error);
  [[nodiscard]] Error lost_error() const;

  const os::LocalConnection connection_;
  const os::ProcessWatch watch_;
  const os::EventSignal ending_;
  const OnProgress on_progress_;
  const OnLost on_lost_;

  mutable std::mutex mutex_;
  std::condition_variable answered_;
  std::uint32_t last_number_ = 0;
  // The answers of pending calls; nullopt: not here yet. A call that gave up removes its entry.
  std::map<std::uint32_t, std::optional<Answer>> answers_;
  // The handlers of pending request() calls.
  std::map<std::uint32_t, std::function<void(Answer answer)>> handlers_;
  std::optional<Error> lost_;
  // Set after `on_lost_` has returned. Calls fail only then, so that a caller may open the next link at once.
  bool is_told_ = false;
  std::thread receiver_;
};

}  // namespace bitsnap::engine
