// What trainers and people ask of an agent.
#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <string>

#include <fmt/format.h>

#include <bitsnap/version.hpp>

#include "base/try.hpp"
#include "base/utf8.hpp"
#include "engine/agent.hpp"
#include "exec/executor.hpp"
#include "json/json_fields.hpp"
#include "os/clock.hpp"
#include "os/file_identity.hpp"
#include "os/memory.hpp"
#include "os/process.hpp"
#include "os/random.hpp"
#include "os/shared_memory.hpp"
#include "store/home.hpp"

namespace bitsnap::engine {
namespace {

// Answers that take memory or a descriptor, or wait for something, and that a connection has not taken in.
constexpr std::size_t kMaxOwed = 16;

// Two containers may have one name for two directories, and this one agent between them.
Result<void> check_directory(const Hello& hello) {
  if (!hello.place || os::identify_file(hello.place->path) == hello.place->identity) return {};
  return fail(
      ErrorKind::invalid_argument,
      fmt::format("job '{0}', store {1}: the agent, process {3}, finds no directory {2} or a different one, as in "
                  "another container. Choose another job name, or stop the agent with 'bitsnap agent stop --job {0}'",
                  hello.job, hello.store, hello.place->path, os::process_id()));
}

}  // namespace

tl::unexpected<Error> Agent::ending_error() const {
  return fail(ErrorKind::not_found,
              fmt::format("the agent of job '{}', process {}, is shutting down and accepts no requests", options_.job,
                          os::process_id()));
}

Result<void> Agent::check_job(const Hello& hello) const {
  if (hello.job != options_.job) {
    return fail(ErrorKind::busy,
                fmt::format("this is the agent of job '{}'; job '{}' has the same socket name. Choose another job name",
                            options_.job, hello.job));
  }
  if (ending_.since_ns) return ending_error();
  if (!present_) return {};
  const Hello& first = present_->first;
  const auto differs = [&](std::string_view what, const auto& expected, const auto& found) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("job '{0}' has {1} {2} at its agent, process {3}, but {1} {4} in this trainer. Choose "
                            "another job name, or stop the agent with 'bitsnap agent stop --job {0}'",
                            hello.job, what, expected, os::process_id(), found));
  };
  if (hello.store != first.store) return differs("store", first.store, hello.store);
  if (hello.world_size != first.world_size && !connections_.has_trainers()) {
    return fail(ErrorKind::not_found,
                fmt::format("the agent of job '{}', process {}, is still working on the saves of {} earlier ranks",
                            hello.job, os::process_id(), first.world_size));
  }
  if (hello.world_size != first.world_size) return differs("world size", first.world_size, hello.world_size);
  // All trainers of the last session have to be gone before the next session begins. What they left stays in memory.
  if (hello.session != first.session && connections_.has_trainers())
    return differs("session", first.session, hello.session);
  for (const auto& [token, connection] : connections_.all()) {
    if (!connection->rank || connection->rank == hello.rank) continue;
    const auto difference = first_difference(connection->settings, hello.settings);
    if (!difference) continue;
    return fail(ErrorKind::invalid_argument,
                fmt::format("job '{}': rank {}, process {}, has {} {}, but rank {} has {}. All ranks of a job must use "
                            "the same settings",
                            hello.job, *connection->rank, connection->watch.process(), difference->name,
                            difference->expected, hello.rank, difference->found));
  }
  return {};
}

Result<void> Agent::handle(std::uint64_t token, const Packet& packet, std::vector<os::Descriptor>& descriptors) {
  if (packet.kind == MessageKind::hello) return on_hello(token, packet);
  const bool is_costly = packet.kind == MessageKind::status || packet.kind == MessageKind::stop ||
                         packet.kind == MessageKind::list || packet.kind == MessageKind::fetch ||
                         packet.kind == MessageKind::persist;
  if (is_costly) BITSNAP_TRY(check_owed(token));
  AgentConnection& connection = *connections_.find(token);
  const Request asked{token, packet.number};
  if (packet.kind == MessageKind::status) {
    connections_.reply_text(asked, MessageKind::report, report());
    return {};
  }
  if (packet.kind == MessageKind::stop) {
    BITSNAP_ASSIGN(const StopRequest request, parse_body<StopRequest>(packet.body));
    ending_.is_told_to_stop = true;
    ending_.is_told_to_abandon |= request.abandon;
    ending_.asked.push_back(asked);
    connection.is_stopping = true;
    return {};
  }
  if (connection.rank) return on_request(asked, *connection.rank, packet, descriptors);
  return fail(ErrorKind::corrupt, fmt::format("'{}' before 'hello'", message_kind_name(packet.kind)));
}

Result<void> Agent::on_hello(std::uint64_t token, const Packet& packet) {
  BITSNAP_ASSIGN(const Hello hello, parse_body<Hello>(packet.body));
  if (connections_.find(token)->rank) return fail(ErrorKind::corrupt, "a second 'hello' on the same connection");
  connections_.close_ended(token);
  AgentConnection* const connection = connections_.find(token);
  if (connection == nullptr) return {};
  if (!ending_.since_ns) BITSNAP_TRY(check_directory(hello));
  const auto is_idle_job = [&] { return !connections_.has_trainers() && is_idle(true); };
  // A restarted job may have another world size, once nothing of the last one is under way.
  const bool is_other = present_ && hello.world_size != present_->first.world_size;
  if (is_other && hello.store == present_->first.store && !ending_.since_ns && is_idle_job()) {
    begin_other_job(hello.world_size);
  }
  BITSNAP_TRY(check_job(hello));
  for (const auto& [other, its] : connections_.all()) {
    if (its->rank != hello.rank) continue;
    return fail(ErrorKind::busy, fmt::format("rank {} of job '{}' already has a running trainer, process {}",
                                             hello.rank, hello.job, its->watch.process()));
  }
  if (!present_) {
    linger_ms_ = hello.linger_ms;
    const unsigned threads = hello.threads != 0 ? hello.threads : std::max(1U, os::usable_threads() / 2);
    const std::string prefix = fmt::format("a{:016x}", os::random_u64());
    os::FileSystem* files = &files_;
    if (is_object_path(hello.store)) {
      limit_object_uploads(hello.upload_bytes_per_second);
      BITSNAP_ASSIGN(const store::Home home, store::home_of(hello.store));
      files = home.files;
    }
    present_ =
        ServedJob{hello, std::make_unique<Job>(*files, hello.store, hello.world_size, hello.session, prefix, threads)};
  } else if (hello.session != present_->first.session) {
    present_->first.session = hello.session;
    present_->job->attempts.begin_restart(hello.session);
  }
  // The agent outlives trainers, and its files are those of the one that is here.
  os::use_umask_of(connection->watch.process());
  present_->job->attempts.note_hello(hello.rank);
  decisions_.note_hello(hello.rank);
  std::unique_ptr<AgentRank>& rank = present_->ranks[hello.rank];
  if (rank == nullptr) rank = std::make_unique<AgentRank>(*present_->job, hello, *this);
  AgentRank::ArenaView arena = rank->renew(hello);
  connection->rank = hello.rank;
  connection->settings = hello.settings;
  connection->trainer = arena.trainer;
  const Welcome welcome{.agent_pid = os::process_id(),
                        .version = std::string(version()),
                        .slot_bytes = arena.slot_bytes,
                        .slots = std::move(arena.slots),
                        .decides = true,
                        .hurries = true,
                        .rotates = true};
  std::optional<os::Descriptor> descriptor;
  if (arena.descriptor.is_open()) descriptor = std::move(arena.descriptor);
  connections_.reply({token, packet.number}, MessageKind::welcome, serialize_body(welcome), std::move(descriptor));
  return {};
}

Result<void> Agent::check_owed(std::uint64_t token) const {
  const AgentConnection& connection = *connections_.find(token);
  const auto its = [token](const auto& requests) {
    return std::ranges::count_if(requests, [token](const Request& each) { return each.connection == token; });
  };
  const auto unread =
      std::ranges::count_if(connection.outgoing, [](const auto& out) { return out.descriptor.has_value(); });
  const auto owed = unread + its(lists_) + its(ending_.asked) + (persisting_ ? its(persisting_->asked) : 0);
  if (static_cast<std::size_t>(owed) + connection.fetching < kMaxOwed) return {};
  return fail(ErrorKind::busy,
              fmt::format("the connection already has {} requests whose answers are pending or unread", kMaxOwed));
}

Result<void> Agent::on_request(const Request& asked, std::uint32_t number, const Packet& packet,
                               std::vector<os::Descriptor>& descriptors) {
  AgentRank& rank = *present_->ranks.at(number);
  switch (packet.kind) {
    case MessageKind::arena: {
      BITSNAP_ASSIGN(const ArenaOffer offer, parse_body<ArenaOffer>(packet.body));
      if (descriptors.size() != 1) return fail(ErrorKind::corrupt, "'arena' has no shared memory");
      BITSNAP_ASSIGN(os::SharedMemory memory,
                     os::SharedMemory::adopt(std::move(descriptors.front()), std::numeric_limits<std::int64_t>::max()));
      BITSNAP_TRY(rank.set_arena(std::move(memory), offer));
      drop_earlier();
      // What was told of the slots of the last one comes before the answer, and is not taken for these.
      take_inbox();
      connections_.reply(asked, MessageKind::ok, "{}");
      return {};
    }
    case MessageKind::staged: {
      BITSNAP_ASSIGN(const Staged staged, parse_body<Staged>(packet.body));
      // But for a shard of what another rank has begun.
      const auto is_others = [&](const auto& other) {
        return other.first != number && other.second->queue().is_storing(staged.step);
      };
      if (ending_.since_ns && !(staged.persist && std::ranges::any_of(present_->ranks, is_others)))
        return ending_error();
      BITSNAP_TRY(rank.stage(staged));
      decisions_.note_staged(number, staged.step);
      connections_.reply(asked, MessageKind::ok, "{}");
      return {};
    }
    case MessageKind::decide: {
      BITSNAP_ASSIGN(const DecideRequest request, parse_body<DecideRequest>(packet.body));
      if (ending_.since_ns) return ending_error();
      const bool is_saved = decide(number, request);
      // The decision may count on slots whose trainers have not heard yet that they are free.
      take_inbox();
      connections_.reply(asked, MessageKind::decided, serialize_body(Decided{is_saved}));
      return {};
    }
    case MessageKind::list: {
      BITSNAP_ASSIGN(const ListRequest request, parse_body<ListRequest>(packet.body));
      const std::uint64_t deadline_ns = os::monotonic_ns() + std::min(request.wait_ms, kLongestWaitMs) * 1'000'000;
      lists_.push_back({asked, number, deadline_ns});
      return {};
    }
    case MessageKind::fetch: return on_fetch(asked, rank, packet);
    case MessageKind::persist: {
      BITSNAP_ASSIGN(const PersistRequest request, parse_body<PersistRequest>(packet.body));
      return on_persist(asked, request);
    }
    case MessageKind::hurry: return on_hurry(asked.connection, packet);
    case MessageKind::rotate: {
      BITSNAP_ASSIGN(const Rotation rotation, parse_body<Rotation>(packet.body));
      rank.rotate(rotation);
      return {};
    }
    case MessageKind::bye:
      present_->job->attempts.note_left(number);
      connections_.close(asked.connection);
      return {};
    default: return fail(ErrorKind::corrupt, fmt::format("'{}' is not a request", message_kind_name(packet.kind)));
  }
}

Result<void> Agent::on_fetch(const Request& asked, AgentRank& rank, const Packet& packet) {
  BITSNAP_ASSIGN(const FetchRequest request, parse_body<FetchRequest>(packet.body));
  if (request.reads_store) drop_earlier();
  ++connections_.find(asked.connection)->fetching;
  rank.fetch(request, [this, asked](Result<FetchResult> result) {
    {
      const std::lock_guard lock(inbox_mutex_);
      inbox_.fetches.push_back({asked, std::move(result)});
    }
    woken_.raise();
  });
  return {};
}

Result<void> Agent::on_hurry(std::uint64_t token, const Packet& packet) {
  BITSNAP_ASSIGN(const Hurry hurry, parse_body<Hurry>(packet.body));
  connections_.find(token)->is_waiting = hurry.waits;
  set_urgency();
  return {};
}

void Agent::set_urgency() {
  const bool is_urgent =
      std::ranges::any_of(connections_.all(), [](const auto& each) { return each.second->is_waiting; });
  if (is_urgent == exec::is_urgent()) return;
  exec::set_urgent(is_urgent);
  if (options_.lower_priority) static_cast<void>(os::set_session_niceness(is_urgent ? 0 : kNicer));
}

bool Agent::decide(std::uint32_t rank, const DecideRequest& request) {
  std::vector<FreeSlots> slots;
  for (const auto& [token, connection] : connections_.all()) {
    if (!connection->rank) continue;
    slots.push_back({*connection->rank, present_->ranks.at(*connection->rank)->free_slots().value_or(request.slots)});
  }
  return decisions_.decide(rank, request.step, slots);
}

StepList Agent::step_list(std::uint32_t rank) const {
  const auto own = present_->ranks.at(rank)->memory_attempts();
  // States of one step from before and after a restart are not one state of all ranks.
  auto everywhere = own;
  if (present_->ranks.size() != present_->job->world_size) everywhere.clear();
  for (const auto& [number, other] : present_->ranks) {
    decltype(everywhere) both;
    std::ranges::set_intersection(everywhere, other->memory_attempts(), std::back_inserter(both));
    everywhere = std::move(both);
  }
  StepList list;
  for (const auto& each : own) {
    const bool is_everywhere = std::ranges::binary_search(everywhere, each);
    list.steps.push_back({.step = each.first, .memory = true, .everywhere = is_everywhere, .attempt = each.second});
  }
  for (const MemoryStep& each : earlier_steps()) {
    if (own.empty() || own.back().first < each.step) list.steps.push_back(each);
  }
  return list;
}

std::string Agent::report() const {
  json::JsonWriter out;
  const auto put = [&out](std::string_view key, const auto& value) {
    out.key(key);
    json::write_json(out, value);
  };
  const auto memory = os::process_memory();
  out.begin_object();
  put("job", options_.job);
  put("process", os::process_id());
  put("version", std::string(version()));
  put("store", present_ ? std::optional(present_->first.store) : std::nullopt);
  put("world_size", present_ ? std::optional(present_->first.world_size) : std::nullopt);
  put("up_seconds", static_cast<double>(os::monotonic_ns() - started_ns_) * 1e-9);
  put("linger_seconds", static_cast<double>(linger_ms_) * 1e-3);
  put("stopping", ending_.since_ns.has_value());
  put("threads", present_ ? std::optional(present_->job->threads) : std::nullopt);
  put("resident_bytes", memory ? std::optional(memory->resident_bytes) : std::nullopt);
  put("earlier", report_earlier());
  const auto put_rank = [&](std::uint32_t number, const AgentRank& rank) {
    const RankReport report = rank.report();
    std::optional<std::int64_t> trainer;
    for (const auto& [token, connection] : connections_.all()) {
      if (connection->rank == number) trainer = connection->watch.process();
    }
    out.begin_object();
    put("rank", number);
    put("trainer_process", trainer);
    put("arena_bytes", report.arena_bytes);
    put("slots", report.slots);
    put("budget_bytes", report.budget_bytes);
    put("memory_bytes", report.memory_bytes);
    put("memory_steps", report.memory_steps);
    put("queued", report.queued);
    put("encoding", report.is_encoding);
    put("writing", report.is_writing);
    put("uncommitted", report.uncommitted);
    put("saves", report.saves);
    put("persisted", report.persisted);
    put("failed", report.failed);
    put("skipped", report.skipped);
    put("raw_bytes", report.raw_bytes);
    put("stored_bytes", report.stored_bytes);
    put("encode_seconds", static_cast<double>(report.encode_us) * 1e-6);
    put("write_seconds", static_cast<double>(report.write_us) * 1e-6);
    put("last_persisted_step", report.last_persisted_step);
    put("last_error", report.last_error.empty() ? std::nullopt : std::optional(report.last_error));
    put("ended", report.ended);
    out.end_object();
  };
  out.key("ranks");
  out.begin_array();
  if (present_) {
    for (const auto& [number, rank] : present_->ranks) put_rank(number, *rank);
  }
  out.end_array();
  out.end_object();
  return replace_invalid_utf8(out.text());
}

}  // namespace bitsnap::engine
