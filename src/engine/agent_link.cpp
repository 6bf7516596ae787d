// Connecting to an agent or starting one, sending requests, and the receiving thread.
#include "engine/agent_link.hpp"

#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "os/process.hpp"

namespace bitsnap::engine {
namespace {

// Longest time for sending a message: an agent that does not read counts as lost.
constexpr std::int64_t kSendMs = 10'000;
constexpr std::int64_t kTryMs = 1'000;
// Starts of a program that ends before it listens.
constexpr int kMostStarts = 5;
constexpr auto kBetweenTries = std::chrono::milliseconds(5);
constexpr auto kBetweenChecks = std::chrono::milliseconds(50);  // for interrupts

// What a user can do about an agent that does not answer.
std::string advice(const os::ProcessWatch& agent) {
  return fmt::format(
      "; it is {}. Continue it with 'kill -CONT {}', or end it with 'kill -KILL {}': what is only in its "
      "memory is lost then, and the next trainer or save starts another agent",
      agent.is_stopped() ? "stopped by a signal or a debugger" : "frozen, or gets no CPU time", agent.process(),
      agent.process());
}

}  // namespace

Result<void> check_interrupt(const Interrupted& interrupted) {
  if (!interrupted || !interrupted()) return {};
  return fail(ErrorKind::cancelled, "interrupted while waiting for the agent");
}

Result<os::LocalConnection> connect_to_agent(const std::string& job, std::int64_t timeout_ms) {
  const std::uint32_t user = os::user_id();
  auto connection = os::LocalConnection::connect(socket_name(job), timeout_ms);
  if (!connection) {
    if (connection.error().kind() != ErrorKind::not_found) return connection;
    return fail(ErrorKind::not_found, fmt::format("job '{}' has no agent on this machine", job));
  }
  if (connection->peer().user != user) {
    return fail(ErrorKind::busy, fmt::format("the socket of job '{}' is in use by process {} of another user, {}", job,
                                             connection->peer().process, connection->peer().user));
  }
  return connection;
}

Result<os::LocalConnection> connect_or_start(const std::string& job, const os::DetachedProgram& program,
                                             std::int64_t timeout_ms, const Interrupted& interrupted) {
  const auto deadline = deadline_in(static_cast<std::uint64_t>(timeout_ms));
  int starts = 0;
  std::optional<os::ProcessWatch> started;
  auto full_deadline = deadline_in(kPromptMs);
  for (;;) {
    BITSNAP_TRY(check_interrupt(interrupted));
    const std::int64_t left = std::min(milliseconds_until(deadline), milliseconds_until(full_deadline));
    auto connection = connect_to_agent(job, std::min(left, kTryMs));
    if (connection) return connection;
    const ErrorKind kind = connection.error().kind();
    // An ending agent may leave a new connection waiting: try again.
    if (kind != ErrorKind::not_found && !(kind == ErrorKind::busy && left > 0)) return connection;
    if (kind == ErrorKind::not_found) full_deadline = deadline_in(kPromptMs);
    if (left == 0) {
      return fail(ErrorKind::busy,
                  fmt::format("the agent of job '{0}' did not accept a connection within {1} ms; if it "
                              "is frozen, continue it with 'kill -CONT', or end it with 'kill -KILL': "
                              "pgrep -f 'agent run --job {0}' finds its process",
                              job, std::min(timeout_ms, kPromptMs)));
    }
    // The started program may have ended because there was another agent, which may have ended since: start it again.
    if (kind == ErrorKind::not_found && !(started && started->is_alive())) {
      if (program.program.empty()) {
        return fail(ErrorKind::not_found,
                    fmt::format("job '{}' has no agent on this machine, and no command to start one is given", job));
      }
      if (starts == kMostStarts) {
        return fail(
            ErrorKind::io,
            fmt::format(
                "the agent of job '{}' could not be started: {} exited {} times before it accepted a connection; {}",
                job, program.program, starts,
                program.log_path.empty() ? "set a log file to see why" : "see its log: " + program.log_path));
      }
      auto process = os::start_detached(program);
      if (!process) return tl::unexpected(std::move(process).error().within("starting the agent"));
      ++starts;
      started.reset();
      if (auto watch = os::ProcessWatch::open(*process)) started = std::move(*watch);
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

Result<std::unique_ptr<AgentLink>> AgentLink::open(os::LocalConnection connection, OnProgress on_progress,
                                                   OnLost on_lost) {
  BITSNAP_ASSIGN(os::ProcessWatch watch, os::ProcessWatch::open_peer(connection));
  BITSNAP_ASSIGN(os::EventSignal ending, os::EventSignal::create());
  return std::unique_ptr<AgentLink>(new AgentLink(std::move(connection), std::move(watch), std::move(ending),
                                                  std::move(on_progress), std::move(on_lost)));
}

AgentLink::AgentLink(os::LocalConnection connection, os::ProcessWatch watch, os::EventSignal ending,
                     OnProgress on_progress, OnLost on_lost)
    : connection_(std::move(connection)),
      watch_(std::move(watch)),
      ending_(std::move(ending)),
      on_progress_(std::move(on_progress)),
      on_lost_(std::move(on_lost)),
      receiver_([this] { receive_all(); }) {}

AgentLink::~AgentLink() {
  ending_.raise();
  receiver_.join();
}

Result<AgentLink::Answer> AgentLink::call(MessageKind kind, std::string body, MessageKind expected,
                                          std::int64_t timeout_ms, std::span<const int> descriptors,
                                          const Interrupted& interrupted) {
  const auto deadline = deadline_in(static_cast<std::uint64_t>(timeout_ms));
  std::uint32_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (is_told_) return tl::unexpected(*lost_);
    number = next_number();
    answers_[number];
  }
  const auto give_up = [&](Error error) -> Result<Answer> {
    const std::lock_guard lock(mutex_);
    answers_.erase(number);
    return tl::unexpected(std::move(error));
  };
  if (auto sent = send(kind, number, std::move(body), descriptors, timeout_ms); !sent) {
    return give_up(std::move(sent).error());
  }
  std::unique_lock lock(mutex_);
  const auto is_ready = [&] { return answers_[number].has_value() || is_told_; };
  std::int64_t left = milliseconds_until(deadline);
  while (interrupted && left > 0 && !answered_.wait_for(lock, kBetweenChecks, is_ready)) {
    lock.unlock();
    if (auto checked = check_interrupt(interrupted); !checked) return give_up(std::move(checked).error());
    lock.lock();
    left = milliseconds_until(deadline);
  }
  const bool in_time = answered_.wait_for(lock, std::chrono::milliseconds(left), is_ready);
  std::optional<Answer> answer = std::move(answers_[number]);
  answers_.erase(number);
  if (!answer) {
    if (lost_) return tl::unexpected(*lost_);
    return fail(ErrorKind::busy,
                fmt::format("the agent, process {}, did not answer '{}' within {} ms{}", watch_.process(),
                            message_kind_name(kind), in_time ? 0 : timeout_ms, advice(watch_)));
  }
  return checked(std::move(*answer), kind, expected);
}

Result<void> AgentLink::request(MessageKind kind, std::string body, MessageKind expected, OnAnswer on_answer) {
  std::uint32_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (is_told_) return tl::unexpected(*lost_);
    number = next_number();
    handlers_[number] = [this, kind, expected, then = std::move(on_answer)](Answer answer) {
      then(checked(std::move(answer), kind, expected));
    };
  }
  auto sent = send(kind, number, std::move(body), {}, kSendMs);
  if (sent) return {};
  const std::lock_guard lock(mutex_);
  handlers_.erase(number);
  return sent;
}

std::uint32_t AgentLink::next_number() {
  // Progress events have the number 0.
  do {
    ++last_number_;
  } while (last_number_ == 0 || answers_.contains(last_number_) || handlers_.contains(last_number_));
  return last_number_;
}

Result<void> AgentLink::send(MessageKind kind, std::uint32_t number, std::string body, std::span<const int> descriptors,
                             std::int64_t timeout_ms) {
  BITSNAP_ASSIGN(const std::vector<std::byte> bytes, serialize_packet({kind, number, std::move(body)}));
  auto sent = connection_.send(bytes, descriptors, std::min(timeout_ms, kSendMs));
  if (sent) return {};
  if (sent.error().kind() != ErrorKind::busy) {
    // The agent is gone. Wait until the receiving thread has received its last messages and recorded the loss.
    std::unique_lock lock(mutex_);
    answered_.wait_for(lock, std::chrono::milliseconds(kSendMs), [&] { return is_told_; });
  }
  // Not `busy`, which means that no answer came: the agent has not received this message.
  return fail(ErrorKind::io, fmt::format("sending '{1}' to the agent, process {0}: {2}", watch_.process(),
                                         message_kind_name(kind), sent.error().message()));
}

Result<AgentLink::Answer> AgentLink::checked(Answer answer, MessageKind asked, MessageKind expected) const {
  if (answer.packet.kind == MessageKind::refused) return tl::unexpected(parse_error(answer.packet.body));
  if (answer.packet.kind == expected) return answer;
  return fail(ErrorKind::corrupt, fmt::format("the agent, process {}, answered '{}' with '{}'", watch_.process(),
                                              message_kind_name(asked), message_kind_name(answer.packet.kind)));
}

void AgentLink::post(MessageKind kind, std::string body) {
  const auto bytes = serialize_packet({kind, 0, std::move(body)});
  if (bytes && !is_lost()) static_cast<void>(connection_.send(*bytes, {}, kTryMs));
}

bool AgentLink::is_lost() const {
  const std::lock_guard lock(mutex_);
  return lost_.has_value();
}

void AgentLink::lose(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    lost_ = error;
  }
  on_lost_(error);
  {
    const std::lock_guard lock(mutex_);
    is_told_ = true;
  }
  answered_.notify_all();
}

Error AgentLink::lost_error() const {
  return {ErrorKind::io, fmt::format("the agent, process {}, {}", watch_.process(),
                                     watch_.is_alive() ? "closed the connection" : "has died")};
}

void AgentLink::receive_all() {
  os::PollSet waiting;
  waiting.watch(connection_.descriptor(), 0);
  waiting.watch(watch_.descriptor(), 1);
  waiting.watch(ending_.descriptor(), 2);
  for (;;) {
    const auto events = waiting.wait(-1);
    if (!events) return lose(events.error());
    bool has_died = false;
    bool has_message = false;
    for (const os::PollEvent& event : *events) {
      if (event.token == 2) return;
      has_died |= event.token == 1;
      has_message |= event.token == 0;
    }
    // Messages that the agent sent before it died still count.
    if (has_message) {
      if (auto received = receive_one(); !received) return lose(received.error());
    } else if (has_died) {
      return lose(lost_error());
    }
  }
}

Result<void> AgentLink::receive_one() {
  auto message = connection_.receive(kMaxPacketBytes, 1, 0);
  if (!message && message.error().kind() == ErrorKind::busy) return {};
  if (!message) return tl::unexpected(std::move(message).error());
  if (!*message) return tl::unexpected(lost_error());
  const auto wrong = [this](Error error) {
    return tl::unexpected(std::move(error).within(fmt::format("the agent, process {}", watch_.process())));
  };
  auto packet = parse_packet((*message)->bytes);
  if (!packet) return wrong(std::move(packet).error());
  if (packet->kind == MessageKind::progress) {
    auto progress = parse_body<ProgressEvent>(packet->body);
    if (!progress) return wrong(std::move(progress).error());
    on_progress_(*progress);
    return {};
  }
  Answer answer{std::move(*packet), std::move((*message)->descriptors)};
  const std::uint32_t number = answer.packet.number;
  std::unique_lock lock(mutex_);
  if (auto handled = handlers_.extract(number)) {
    lock.unlock();
    handled.mapped()(std::move(answer));
    return {};
  }
  const auto asked = answers_.find(number);
  if (asked == answers_.end()) return {};  // the call has given up
  asked->second = std::move(answer);
  lock.unlock();
  answered_.notify_all();
  return {};
}

}  // namespace bitsnap::engine
