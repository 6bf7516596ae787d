// A trainer's connection to its agent: requests and their answers, and what the agent tells in between.
//
// A thread of its own receives. Requests may be made by several threads at once. Once the connection or the agent is
// gone the link is lost for good: everybody who waits gets the error, and a new link has to be opened. Not for use in a
// forked child.
#pragma once

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

// Asked now and then while something is waited for: true ends the wait as `cancelled`. May be empty.
using Interrupted = std::function<bool()>;
[[nodiscard]] Result<void> check_interrupt(const Interrupted& interrupted);

// The agent of a job of this user: not_found if there is none, busy if the name is another user's.
[[nodiscard]] Result<os::LocalConnection> connect_to_agent(const std::string& job, std::int64_t timeout_ms);

// The same, after starting one where there is none. `program` is the command with its arguments.
[[nodiscard]] Result<os::LocalConnection> connect_or_start(const std::string& job, const os::DetachedProgram& program,
                                                           std::int64_t timeout_ms,
                                                           const Interrupted& interrupted = {});

class AgentLink {
 public:
  // All are called on the receiving thread, and must not make requests.
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

  // Sends a request and waits for its answer, which is of the kind that is expected, or the error: what was refused; io
  // where the link is lost or nothing could be sent; busy where the time was over first, and cancelled, in which cases
  // the answer is dropped when it comes.
  [[nodiscard]] Result<Answer> call(MessageKind kind, Json body, MessageKind expected, std::int64_t timeout_ms,
                                    std::span<const int> descriptors = {}, const Interrupted& interrupted = {});
  // Sends a request and does not wait: `on_answer` is called with its answer, or with why that is none; never, where
  // the link is lost first. An error means that nothing was sent.
  [[nodiscard]] Result<void> request(MessageKind kind, Json body, MessageKind expected, OnAnswer on_answer);
  // Sends what has no answer, if it can.
  void post(MessageKind kind);

  [[nodiscard]] bool is_lost() const;
  [[nodiscard]] std::int64_t agent_process() const noexcept { return watch_.process(); }

 private:
  AgentLink(os::LocalConnection connection, os::ProcessWatch watch, os::EventSignal ending, OnProgress on_progress,
            OnLost on_lost);
  void receive_all();
  // False once nothing more is to come.
  bool receive_one();
  // Sends a request under this number; io where it could not be.
  [[nodiscard]] Result<void> send(MessageKind kind, std::uint32_t number, Json body, std::span<const int> descriptors,
                                  std::int64_t timeout_ms);
  // One that no answer is expected under. Precondition: `mutex_` is held.
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
  // nullopt: asked for; requests that are not in it are not waited for any more.
  std::map<std::uint32_t, std::optional<Answer>> answers_;
  // Of requests that nobody waits for the answers of.
  std::map<std::uint32_t, std::function<void(Answer answer)>> handlers_;
  std::optional<Error> lost_;
  // Whoever waits for an answer hears that the link is lost after `on_lost_` has: it may open the next one at once.
  bool is_told_ = false;
  std::thread receiver_;
};

}  // namespace bitsnap::engine
