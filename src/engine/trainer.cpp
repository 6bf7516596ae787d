// Attaching to an agent, also to the next one after an agent has died. The caller's thread runs all of this.
#include "engine/trainer.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <bitsnap/object_store.hpp>

#include "base/hash.hpp"
#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/utf8.hpp"
#include "os/file_identity.hpp"
#include "os/process.hpp"
#include "os/random.hpp"
#include "store/home.hpp"
#include "store/run_layout.hpp"

namespace bitsnap {
namespace {

using engine::MessageKind;
using engine::milliseconds_until;

constexpr std::size_t kMaxSessionBytes = 48;
// Mask for a trainer's first ticket: far from the tickets of other trainers, and far from overflow.
constexpr std::uint64_t kTicketMask = 0x7fff'ffff'0000'0000;
// Shortest wait for an answer that an agent gives at once. The agent may act on a message even if the trainer no longer
// waits, so a nearly expired deadline must not cut the wait short.
constexpr std::int64_t kLeastAnswerMs = 10'000;
constexpr auto kBetweenAgents = std::chrono::milliseconds(5);

// Waits a moment before the next connection; busy if the deadline has passed, although there may be an agent.
Result<void> await_next_agent(std::chrono::steady_clock::time_point deadline, const Error& why) {
  if (milliseconds_until(deadline) == 0) {
    return fail(ErrorKind::busy, fmt::format("timed out while connecting to the next agent: {}", why.message()));
  }
  std::this_thread::sleep_for(kBetweenAgents);
  return {};
}

Result<void> check_options(const EngineOptions& options) {
  const auto wrong = [](std::string message) { return fail(ErrorKind::invalid_argument, std::move(message)); };
  if (options.path.empty()) return wrong("the path of the store must not be empty");
  // Messages are UTF-8, so any other path would arrive changed.
  if (!is_utf8(options.path)) {
    return wrong(fmt::format("the path of the store must be valid UTF-8, got {}", quote_name(options.path)));
  }
  BITSNAP_TRY(engine::check_job_name(options.job.name));
  if (options.job.world_size == 0 || options.job.world_size > store::kMaxShards) {
    return wrong(fmt::format("world_size must be 1 to {}, got {}", store::kMaxShards, options.job.world_size));
  }
  if (options.job.rank >= options.job.world_size) {
    return wrong(fmt::format("rank must be below world_size = {}, got {}", options.job.world_size, options.job.rank));
  }
  if (!options.job.session.empty() &&
      (options.job.session.size() > kMaxSessionBytes || !store::is_attempt_name(options.job.session))) {
    return wrong(fmt::format("session must have 1 to {} of the characters a-z, 0-9 and '-', got '{}'", kMaxSessionBytes,
                             options.job.session));
  }
  if (options.memory.slots == 0 || options.memory.slots > engine::kMaxSlots) {
    return wrong(fmt::format("slots must be 1 or {}, got {}", engine::kMaxSlots, options.memory.slots));
  }
  if (options.memory.snapshots == 0) return wrong("snapshots must be at least 1, got 0");
  BITSNAP_TRY(check_retention(options.retention));
  return check_settings(options.settings);
}

}  // namespace

std::string default_job(const std::string& path) {
  const std::string run = resolve_branch(path).value_or(path);
  return fmt::format("path-{:016x}", hash64(as_byte_span(store::canonical_home(run))));
}

std::string_view save_stage_name(SaveStage stage) noexcept {
  switch (stage) {
    case SaveStage::skipped: return "skipped";
    case SaveStage::staged: return "staged";
    case SaveStage::memory: return "memory";
    case SaveStage::persisted: return "persisted";
    case SaveStage::failed: break;
  }
  return "failed";
}

Engine::Impl::Impl(const EngineOptions& options, os::FileSystem& files, os::MemoryProbe memory)
    : options_(options),
      memory_(std::move(memory)),
      process_(os::process_id()),
      executor_(exec::make_executor(options.threads)),
      store_(options_, files),
      arena_(options_, *executor_, memory_),
      // A random start, so that events about saves of an earlier trainer match no save of this one.
      saves_(os::random_u64() & kTicketMask) {
  self_->impl = this;
}

Result<std::unique_ptr<Engine::Impl>> Engine::Impl::attach(const EngineOptions& options, os::FileSystem* files,
                                                           os::MemoryProbe memory) {
  EngineOptions complete = options;
  BITSNAP_ASSIGN(const store::Home home, store::find_home(options.path));
  if (!complete.path.empty()) complete.path = store::canonical_home(home.path);
  if (complete.job.name.empty()) complete.job.name = default_job(complete.path);
  BITSNAP_TRY(check_options(complete));
  const Clock::time_point deadline = engine::deadline_in(complete.timeout_ms);
  std::unique_ptr<Impl> impl(new Impl(complete, files != nullptr ? *files : *home.files, std::move(memory)));
  BITSNAP_TRY(impl->store_.check());
  const std::lock_guard lock(impl->save_mutex_);
  BITSNAP_TRY(impl->connected(deadline));
  return impl;
}

Engine::Impl::~Impl() {
  {
    const std::lock_guard lock(self_->mutex);
    self_->impl = nullptr;
  }
  if (const Link link = this->link()) link->post(MessageKind::bye);
  drop_link();
}

bool Engine::Impl::is_forked() const noexcept { return os::process_id() != process_; }

Result<void> Engine::Impl::check_process() const {
  if (!is_forked()) return {};
  return fail(ErrorKind::invalid_argument,
              fmt::format("this handle belongs to process {}, which this process was forked from; open a new handle",
                          process_));
}

engine::Hello Engine::Impl::hello() const {
  return {.job = options_.job.name,
          .store = options_.path,
          .place = is_object_path(options_.path) ? std::nullopt : os::nearest_file(options_.path),
          .rank = options_.job.rank,
          .world_size = options_.job.world_size,
          .session = options_.job.session,
          .settings = {.coding = options_.settings, .retention = options_.retention},
          .budget_bytes = options_.memory.budget_bytes,
          .memory_snapshots = options_.memory.snapshots,
          .linger_ms = options_.agent.linger_ms,
          .threads = arena_.agent_threads(),
          .upload_bytes_per_second = options_.agent.upload_bytes_per_second};
}

Engine::Impl::Link Engine::Impl::link() const {
  const std::lock_guard lock(mutex_);
  return session_.is_lost ? nullptr : session_.link;
}

void Engine::Impl::drop_link() {
  Link last;  // ends after the lock: it waits for its thread, which calls this object and takes `mutex_`
  const std::lock_guard lock(mutex_);
  last.swap(session_.link);
}

Result<Engine::Impl::Link> Engine::Impl::connected(Clock::time_point deadline) {
  if (Link link = this->link()) return link;
  drop_link();
  settle_lost();
  const os::DetachedProgram agent{.program = options_.agent.command,
                                  .arguments = {"agent", "run", "--job", options_.job.name},
                                  .environment = {},
                                  .log_path = options_.agent.log};
  for (;;) {
    BITSNAP_ASSIGN(
        os::LocalConnection connection,
        engine::connect_or_start(options_.job.name, agent, milliseconds_until(deadline), options_.interrupted));
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      session_ = {.number = session_.number + 1};
      saves_.begin_link();
      number = session_.number;
    }
    auto opened = engine::AgentLink::open(
        std::move(connection), [this, number](const engine::ProgressEvent& event) { on_progress(number, event); },
        [this, number](const Error& error) { on_lost(number, error); });
    if (!opened) {
      // not_found: the agent died after it accepted the connection.
      if (opened.error().kind() != ErrorKind::not_found) return tl::unexpected(std::move(opened).error());
      BITSNAP_TRY(await_next_agent(deadline, opened.error()));
      continue;
    }
    Link link = std::move(*opened);
    {
      const std::lock_guard lock(mutex_);
      session_.is_lost = link->is_lost();
    }
    Result<void> greeted = greet(link, deadline);
    if (greeted) greeted = hand_over_again(link, deadline);
    {
      const std::lock_guard lock(mutex_);
      if (greeted && !session_.is_lost) {
        session_.link = link;
        return link;
      }
      session_.is_lost = true;
    }
    // An ending agent refuses `hello` with not_found; the trainer waits for the next agent.
    const bool is_ending = link->is_lost() || (!greeted && greeted.error().kind() == ErrorKind::not_found);
    const Error why =
        greeted ? Error(ErrorKind::io, "the connection to the agent was lost") : std::move(greeted).error();
    if (!is_ending) return tl::unexpected(why);
    BITSNAP_TRY(await_next_agent(deadline, why));
  }
}

Result<void> Engine::Impl::greet(const Link& link, Clock::time_point deadline) {
  BITSNAP_ASSIGN(engine::AgentLink::Answer answer,
                 link->call(MessageKind::hello, serialize_body(hello()), MessageKind::welcome,
                            std::min(milliseconds_until(deadline), engine::kPromptMs), {}, options_.interrupted));
  BITSNAP_ASSIGN(const engine::Welcome welcome, engine::parse_body<engine::Welcome>(answer.packet.body));
  {
    const std::lock_guard lock(mutex_);
    session_.welcome = welcome;
    session_.is_silent = false;
  }
  // If the trainer has an arena, the agent is new and gets that arena later.
  if (arena_.get() != nullptr || answer.descriptors.size() != 1) return {};
  // If this trainer cannot use the last trainer's arena, a new one is made later.
  if (!arena_.adopt(std::move(answer.descriptors.front()), welcome)) return {};
  const std::lock_guard lock(mutex_);
  session_.has_arena = true;
  saves_.adopt_arena(welcome.slots);
  return {};
}

// Gives a new agent the arena, and the unfinished saves that are still in a slot.
Result<void> Engine::Impl::hand_over_again(const Link& link, Clock::time_point deadline) {
  std::vector<engine::Staged> again;
  {
    const std::lock_guard lock(mutex_);
    again = saves_.hand_over_again();
  }
  if (again.empty()) return {};
  BITSNAP_TRY(offer_arena(link, *arena_.get(), deadline));
  for (const engine::Staged& staged : again) {
    BITSNAP_TRY(link->call(MessageKind::staged, serialize_body(staged), MessageKind::ok,
                           std::max(milliseconds_until(deadline), kLeastAnswerMs)));
    const std::lock_guard lock(mutex_);
    if (engine::TrainerSave* const save = saves_.find(staged.ticket)) save->link = session_.number;
  }
  return {};
}

Result<void> Engine::Impl::offer_arena(const Link& link, const engine::Arena& arena, Clock::time_point deadline) {
  const int descriptor = arena.memory.descriptor();
  const engine::ArenaOffer offer{arena.slots, arena.slot_bytes};
  auto answer = link->call(MessageKind::arena, serialize_body(offer), MessageKind::ok,
                           std::max(milliseconds_until(deadline), kLeastAnswerMs), std::span(&descriptor, 1),
                           options_.interrupted);
  const std::lock_guard lock(mutex_);
  // Without an answer, the trainer does not know which arena the agent has, so it sends the arena again.
  session_.has_arena = answer.has_value();
  if (!answer) return tl::unexpected(std::move(answer).error());
  return {};
}

Result<std::unique_lock<std::mutex>> Engine::Impl::lock_saving(Clock::time_point deadline) {
  std::unique_lock lock(save_mutex_, std::try_to_lock);
  while (!lock.owns_lock()) {
    BITSNAP_TRY(engine::check_interrupt(options_.interrupted));
    if (Clock::now() >= deadline) {
      return fail(ErrorKind::busy,
                  fmt::format("another call on this handle is still running after {} ms", options_.timeout_ms));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    static_cast<void>(lock.try_lock());
  }
  return lock;
}

}  // namespace bitsnap
