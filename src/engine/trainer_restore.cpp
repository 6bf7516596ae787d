// Restoring states from the agent's memory or from the store. Runs on the thread that restores; threads that read a
// restored snapshot may call the completer of accept_files().
#include <algorithm>
#include <limits>
#include <map>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "engine/fetched_snapshots.hpp"
#include "engine/shared_text.hpp"
#include "engine/trainer.hpp"
#include "restore/open_snapshot.hpp"

namespace bitsnap {
namespace {

using engine::MessageKind;
using engine::milliseconds_until;

// The agent waits for saves that are being encoded, but answers this much before the trainer stops waiting; within half
// of the time if that is less.
constexpr std::int64_t kAnswerMs = 1'000;

}  // namespace

Result<engine::StepList> Engine::Impl::list(Clock::time_point deadline) {
  const std::int64_t left_ms = milliseconds_until(deadline);
  const engine::ListRequest request{static_cast<std::uint64_t>(left_ms - std::min(kAnswerMs, left_ms / 2))};
  BITSNAP_ASSIGN(engine::AgentLink::Answer answer,
                 ask(MessageKind::list, serialize_body(request), MessageKind::steps, deadline));
  BITSNAP_ASSIGN(const std::string text, engine::read_shared_text(answer.packet.body, std::move(answer.descriptors)));
  return engine::parse_body<engine::StepList>(text);
}

Result<std::vector<RestorableStep>> Engine::Impl::steps(std::optional<std::uint64_t> timeout_ms) {
  return no_throw("steps", [&]() -> Result<std::vector<RestorableStep>> {
    BITSNAP_TRY(check_process());
    std::map<std::uint64_t, RestorableStep> found;
    {
      const Clock::time_point deadline = engine::deadline_in(timeout_ms.value_or(options_.timeout_ms));
      BITSNAP_ASSIGN(const auto saving, lock_saving(deadline));
      BITSNAP_ASSIGN(const engine::StepList list, this->list(deadline));
      for (const engine::MemoryStep& step : list.steps) {
        // Of several attempts of an earlier step, the one of the most ranks.
        if (const auto known = found.find(step.step);
            known != found.end() && known->second.held_ranks.size() >= step.held_ranks.size())
          continue;
        found[step.step] = {.step = step.step,
                            .in_memory = step.memory,
                            .everywhere = step.everywhere,
                            .attempt = step.attempt,
                            .earlier_ranks = step.earlier_ranks,
                            .held_ranks = step.held_ranks};
      }
    }
    if (const auto store = store_.open()) {
      if (const auto committed = (*store)->steps()) {
        const auto newest = (*store)->latest();
        for (const std::uint64_t step : *committed) {
          // Kept as damaged. If there is no other, a restore fails with its damage.
          if (newest && *newest && step > **newest) break;
          RestorableStep& known = found[step];
          if (known.earlier_ranks != 0) known = {};
          // The state in memory may be from before a restart, of an attempt that was never committed.
          if (!known.attempt.empty() && store_.committed_attempt(step).value_or(std::nullopt) != known.attempt)
            known = {};
          known.step = step;
          known.in_store = true;
        }
      }
    }
    std::vector<RestorableStep> steps;
    steps.reserve(found.size());
    for (const auto& [number, step] : found) steps.push_back(step);
    return steps;
  });
}

Result<std::optional<std::uint64_t>> Engine::Impl::latest() {
  BITSNAP_ASSIGN(const std::vector<RestorableStep> all, steps());
  for (const RestorableStep& step : all | std::views::reverse) {
    if (step.everywhere || step.in_store) return std::optional(step.step);
  }
  return std::optional<std::uint64_t>();
}

Result<void> Engine::Impl::persist_earlier(std::uint64_t step, const std::string& attempt,
                                           std::optional<std::uint64_t> timeout_ms) {
  return no_throw("persist_earlier", [&]() -> Result<void> {
    BITSNAP_TRY(check_process());
    const Clock::time_point deadline = engine::deadline_in(timeout_ms.value_or(options_.timeout_ms));
    BITSNAP_ASSIGN(const auto saving, lock_saving(deadline));
    // Whatever the answer: agents may store the step later than the first save of this trainer.
    store_.note_step(step);
    BITSNAP_TRY(
        ask(MessageKind::persist, serialize_body(engine::PersistRequest{step, attempt}), MessageKind::ok, deadline));
    return {};
  });
}

Result<Engine::Restored> Engine::Impl::restore(std::uint64_t step, const std::string& attempt,
                                               std::optional<std::uint64_t> timeout_ms, bool in_place) {
  return no_throw("restore", [&]() -> Result<Restored> {
    BITSNAP_TRY(check_process());
    const Clock::time_point deadline = engine::deadline_in(timeout_ms.value_or(options_.timeout_ms));
    auto from_memory = fetch(step, attempt, in_place, deadline);
    if (from_memory) return Restored{.snapshot = std::move(*from_memory), .from_memory = true};
    const bool lacks_memory = from_memory.error().kind() == ErrorKind::resource_exhausted;
    auto from_store = load_in_memory_left(step, in_place, deadline);
    // An earlier step must not take the place of one that another try can restore, even if the store's copy is damaged.
    if (!from_store && lacks_memory) return tl::unexpected(std::move(from_memory).error());
    if (!from_store) {
      // If the step is not in memory, the error of the store is the useful one.
      if (from_memory.error().kind() == ErrorKind::not_found) {
        if (from_store.error().kind() == ErrorKind::not_found) BITSNAP_TRY(check_not_dropped(step, deadline));
        return tl::unexpected(std::move(from_store).error());
      }
      return tl::unexpected(
          std::move(from_store)
              .error()
              .within(fmt::format("restoring from memory failed ({}), and so did restoring from the store",
                                  from_memory.error().message())));
    }
    Restored restored{.snapshot = std::move(*from_store)};
    if (from_memory.error().kind() != ErrorKind::not_found) restored.memory_error = std::move(from_memory).error();
    return restored;
  });
}

Result<std::shared_ptr<const Snapshot>> Engine::Impl::load_in_memory_left(std::uint64_t step, bool in_place,
                                                                          Clock::time_point deadline) {
  BITSNAP_ASSIGN(std::shared_ptr<const Snapshot> snapshot, store_.load(step));
  std::uint64_t state_bytes = 0;
  for (const StreamInfo& stream : snapshot->streams()) state_bytes += stream.elements * element_size(stream.dtype);
  const std::uint64_t needed = (in_place ? 0 : state_bytes) + engine::coding_bytes(executor_->threads(), state_bytes);
  const auto is_enough = [needed](const Result<os::AvailableMemory>& available) {
    return !available || available->available_bytes >= needed;
  };
  if (is_enough(os::available_memory_for(needed, memory_))) return snapshot;
  // Without an agent, or without its answer in time, there may be enough memory nevertheless.
  const Result<void> given_back = give_back_for(step, deadline);
  if (!given_back && given_back.error().kind() == ErrorKind::cancelled) return tl::unexpected(given_back.error());
  const auto available = memory_();
  if (is_enough(available)) return snapshot;
  return fail(ErrorKind::resource_exhausted,
              fmt::format("restoring step {} from the store needs {} bytes, but only {} bytes of memory are available "
                          "({})",
                          step, needed, available->available_bytes, available->limit));
}

Result<void> Engine::Impl::give_back_for(std::uint64_t step, Clock::time_point deadline) {
  BITSNAP_ASSIGN(const std::optional<std::string> attempt, store_.committed_attempt(step));
  BITSNAP_ASSIGN(const auto saving, lock_saving(deadline));
  const auto link = connected(deadline);
  if (!link && link.error().kind() == ErrorKind::cancelled) return tl::unexpected(link.error());
  if (link) {
    engine::FetchRequest request{.step = step, .attempt = attempt.value_or("")};
    request.reads_store = true;
    BITSNAP_TRY(give_back_agents_memory(*link, request, deadline));
  }
  {
    const std::lock_guard lock(mutex_);
    if (session_.has_arena || saves_.needs_arena()) return {};
    saves_.begin_arena(0);
  }
  arena_.drop();
  return {};
}

Result<void> Engine::Impl::check_not_dropped(std::uint64_t step, Clock::time_point deadline) {
  BITSNAP_ASSIGN(const auto saving, lock_saving(deadline));
  const auto known = list(deadline);
  if (!known) return {};  // the error of the store says enough
  const auto found = std::ranges::find(known->steps, step, &engine::MemoryStep::step);
  if (found == known->steps.end() || found->earlier_ranks == 0) return {};
  return fail(
      ErrorKind::invalid_argument,
      fmt::format("step {} was saved with world_size = {} to the memory of the agent, but world_size is {} now: memory "
                  "serves restarts with as many ranks only. Other numbers of ranks read steps of the store {}{}",
                  step, found->earlier_ranks, options_.job.world_size, options_.path,
                  found->held_ranks.empty() ? ", and the agent has dropped this one"
                                            : ": persist_earlier() stores what memory still has"));
}

Result<engine::AgentLink::Answer> Engine::Impl::ask(MessageKind kind, const std::string& body, MessageKind expected,
                                                    Clock::time_point deadline) {
  return with_agent(deadline, [&](const Link& link) {
    return link->call(kind, body, expected, milliseconds_until(deadline), {}, options_.interrupted);
  });
}

Result<std::shared_ptr<const engine::FetchedSnapshots>> Engine::Impl::accept_files(engine::AgentLink::Answer answer,
                                                                                   std::uint64_t step) {
  BITSNAP_ASSIGN(engine::Fetched fetched, engine::parse_body<engine::Fetched>(answer.packet.body));
  BITSNAP_ASSIGN(os::MappedMemory mapping,
                 engine::map_frozen(std::move(answer.descriptors), std::numeric_limits<std::int64_t>::max()));
  auto complete = [self = self_, step]() -> Result<std::shared_ptr<const engine::FetchedSnapshots>> {
    const std::lock_guard lock(self->mutex);
    Impl* const impl = self->impl;
    const Link link = impl == nullptr ? nullptr : impl->link();
    if (link == nullptr) {
      return fail(ErrorKind::not_found,
                  fmt::format("step {}: the connection to the agent that holds it in memory was lost", step));
    }
    BITSNAP_ASSIGN(
        engine::AgentLink::Answer rest,
        link->call(MessageKind::fetch, serialize_body(engine::FetchRequest{step, true}), MessageKind::fetched,
                   engine::wait_of(impl->options_.timeout_ms), {}, impl->options_.interrupted));
    return impl->accept_files(std::move(rest), step);
  };
  return engine::FetchedSnapshots::make(std::move(fetched), std::move(mapping),
                                        fmt::format("step {} in the memory of agent {}", step, agent_process()),
                                        options_.limits, std::move(complete));
}

Result<engine::AgentLink::Answer> Engine::Impl::fetch_files(engine::FetchRequest request, Clock::time_point deadline) {
  request.threads = executor_->threads();
  for (bool is_first = true;; is_first = false) {
    const auto available = is_first ? memory_() : os::available_memory_for(UINT64_MAX, memory_);
    request.available_bytes = available ? std::max<std::uint64_t>(1, available->available_bytes) : 0;
    auto answer = ask(MessageKind::fetch, serialize_body(request), MessageKind::fetched, deadline);
    if (answer || answer.error().kind() != ErrorKind::resource_exhausted) return answer;
    give_free_slots_back();
    if (!is_first) return answer;
  }
}

Result<std::shared_ptr<const Snapshot>> Engine::Impl::fetch(std::uint64_t step, const std::string& attempt,
                                                            bool in_place, Clock::time_point deadline) {
  BITSNAP_ASSIGN(const auto saving, lock_saving(deadline));
  BITSNAP_TRY(connected(deadline));
  BITSNAP_ASSIGN(const std::string wanted, wanted_attempt(step, attempt, deadline));
  const std::shared_ptr<engine::Arena> arena = arena_.get();
  engine::FetchRequest request{step, arena == nullptr, wanted};
  request.in_place = in_place;
  BITSNAP_ASSIGN(engine::AgentLink::Answer answer, fetch_files(std::move(request), deadline));
  BITSNAP_ASSIGN(const auto files, accept_files(std::move(answer), step));
  BITSNAP_ASSIGN(std::shared_ptr<const Snapshot> snapshot, files->open_wanted());
  const std::optional<std::uint32_t> slot = files->slot();
  if (!slot || arena == nullptr || *slot >= arena->slots) return snapshot;

  // The agent says that a slot still holds the state. Every chunk read from the slot is checked against its hash in the
  // snapshot.
  const auto state = engine::read_slot(arena->slot(*slot), arena->slot_bytes, options_.limits);
  if (!state) return snapshot;
  auto chunks = std::make_shared<restore::DecodedState>(*snapshot, engine::tensor_bytes(*state), arena);
  restore::attach_decoded(*snapshot, chunks);
  arena_.read_by(*slot, chunks, files);
  return snapshot;
}

Result<std::string> Engine::Impl::wanted_attempt(std::uint64_t step, const std::string& agreed,
                                                 Clock::time_point deadline) {
  if (options_.job.world_size == 1) return std::string();
  BITSNAP_ASSIGN(std::optional<std::string> stored, store_.committed_attempt(step));
  if (stored) return *std::move(stored);
  if (!agreed.empty()) return agreed;
  BITSNAP_ASSIGN(const engine::StepList known, list(deadline));
  const auto found = std::ranges::find(known.steps, step, &engine::MemoryStep::step);
  if (found != known.steps.end() && found->everywhere) return found->attempt;
  return fail(ErrorKind::not_found, fmt::format("the agent's memory does not hold step {} of all ranks", step));
}

}  // namespace bitsnap
