// Staging: fits the arena, takes a free slot, copies the state, and tells the agent. Runs on the thread that saves,
// except on_taken(), which the link's receiving thread calls.
#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "engine/trainer.hpp"
#include "os/clock.hpp"

namespace bitsnap {
namespace {

using engine::MessageKind;
using engine::milliseconds_until;

// How long the training waits for an agent that does not answer, once until the agent speaks again.
constexpr std::int64_t kDecisionMs = 2'000;
constexpr std::uint64_t kNoStep = UINT64_MAX;
constexpr auto kBetweenArenas = std::chrono::milliseconds(20);
constexpr auto kBetweenChecks = std::chrono::milliseconds(50);  // for interrupts

}  // namespace

Result<void> Engine::Impl::reserve(const State& state) {
  return no_throw("save", [&]() -> Result<void> {
    BITSNAP_TRY(check_process());
    const Clock::time_point deadline = engine::deadline_in(options_.timeout_ms);
    BITSNAP_ASSIGN(const auto saving, lock_saving(deadline));
    BITSNAP_ASSIGN(const engine::SlotPlan plan, planner_.plan(state));
    BITSNAP_TRY(fit_arena(plan, Pages::all, deadline));
    BITSNAP_TRY(arena_.take_missing_pages(Pages::all));
    for (std::uint32_t slot = 0; slot < arena_.get()->slots; ++slot) arena_.pin(slot, state);
    return {};
  });
}

Result<SaveState> Engine::Impl::save(std::uint64_t step, const State& state, bool persist) {
  BITSNAP_TRY(check_process());
  const os::Stopwatch whole;
  const Clock::time_point deadline = engine::deadline_in(options_.timeout_ms);
  BITSNAP_ASSIGN(const auto saving, lock_saving(deadline));
  BITSNAP_ASSIGN(const engine::SlotPlan plan, planner_.plan(state));
  BITSNAP_TRY(fit_arena(plan, Pages::of_a_slot, deadline));

  const os::Stopwatch waiting;
  std::optional<std::uint32_t> slot;
  BITSNAP_ASSIGN(const bool is_wanted, is_decided_to_save(step));
  if (is_wanted) {
    BITSNAP_ASSIGN(slot, take_slot(deadline));
  }
  engine::TrainerSave save;
  save.state.step = step;
  save.state.persist = persist;
  save.state.raw_bytes = plan.raw_bytes;
  save.state.wait_seconds = waiting.elapsed_seconds();
  const auto remember = [&] {
    save.state.stall_seconds = whole.elapsed_seconds();
    const std::lock_guard lock(mutex_);
    save.state.ticket = saves_.next_ticket();
    saves_.add(save);
  };
  if (!slot) {
    save.state.stage = SaveStage::skipped;
    remember();
    return save.state;
  }
  const auto fill = [&]() -> Result<void> {
    BITSNAP_TRY(arena_.take_pages(*slot));
    arena_.pin(*slot, state);
    return engine::fill_slot(state, plan, arena_.get()->writable_slot(*slot), *executor_);
  };
  const auto failed = [&](Error error) {
    return tl::unexpected(std::move(error).within(fmt::format("staging step {}", step)));
  };
  if (auto filled = no_throw("staging", fill); !filled) {
    change([&] { saves_.free_slot(*slot); });
    return failed(std::move(filled).error());
  }

  // From here on the save is recorded: if the agent dies now, the next agent gets it.
  save.slot = slot;
  save.bytes = plan.bytes;
  save.is_new = store_.is_new(step, persist);
  remember();
  if (auto told = hand_over(save.staged(), deadline); !told) {
    const std::lock_guard lock(mutex_);
    saves_.take_back(save.state.ticket);
    return failed(std::move(told).error());
  }
  arena_.take_rest_in_background();  // the pages of the other slot, for the next save
  save.state.stall_seconds = whole.elapsed_seconds();
  const std::lock_guard lock(mutex_);
  if (engine::TrainerSave* const known = saves_.find(save.state.ticket)) {
    known->state.stall_seconds = save.state.stall_seconds;
  }
  return save.state;
}

Result<bool> Engine::Impl::is_decided_to_save(std::uint64_t step) {
  if (options_.memory.when_busy != WhenBusy::skip || options_.job.world_size == 1) return true;
  const Link link = link_that_knows(&engine::Welcome::decides);
  {
    const std::lock_guard lock(mutex_);
    if (link == nullptr || session_.is_silent) return true;
  }
  const engine::DecideRequest request{step, options_.memory.slots};
  const auto answer = link->call(MessageKind::decide, serialize_body(request), MessageKind::decided,
                                 std::min(kDecisionMs, engine::wait_of(options_.timeout_ms)), {}, options_.interrupted);
  const auto decided =
      answer.and_then([](const auto& got) { return engine::parse_body<engine::Decided>(got.packet.body); });
  if (decided) return decided->save;
  if (decided.error().kind() == ErrorKind::cancelled) return tl::unexpected(decided.error());
  // Without a decision, this rank's slots decide. If other ranks then do otherwise, the step is not committed.
  const std::lock_guard lock(mutex_);
  session_.is_silent = decided.error().kind() == ErrorKind::busy;
  return true;
}

// Tells the agent that the save is staged; if the agent dies before it hears, tells the next one. Does not wait for the
// answer, because an agent with low priority may need a while.
Result<void> Engine::Impl::hand_over(const engine::Staged& staged, Clock::time_point deadline) {
  for (;;) {
    BITSNAP_ASSIGN(const Link link, connected(deadline));
    bool has_arena = false;
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      const engine::TrainerSave* const save = saves_.find(staged.ticket);
      // connected() may have handed the save over, and the save may be over by now.
      if (save == nullptr || save->link == session_.number || save->state.is_over()) return {};
      number = session_.number;
      has_arena = session_.has_arena;
    }
    Result<void> told;
    if (!has_arena) told = offer_arena(link, *arena_.get(), deadline);
    if (told) {
      {
        const std::lock_guard lock(mutex_);
        engine::TrainerSave* const save = saves_.find(staged.ticket);
        save->link = number;
        save->was_told = true;
      }
      told = link->request(
          MessageKind::staged, serialize_body(staged), MessageKind::ok,
          [this, number, ticket = staged.ticket](const auto& answer) { on_taken(number, ticket, answer); });
    }
    if (told || !link->is_lost()) return told;
  }
}

void Engine::Impl::on_taken(std::uint64_t link, std::uint64_t ticket, const Result<engine::AgentLink::Answer>& answer) {
  if (answer) return;
  change([&] {
    engine::TrainerSave* const save = saves_.find(ticket);
    if (link != session_.number || save == nullptr || save->state.is_over()) return;
    // An ending agent refuses new saves, but reports on earlier ones until it ends. The next agent gets the states that
    // are then still in a slot.
    if (answer.error().kind() == ErrorKind::not_found) {
      save->was_told = false;
    } else {
      saves_.refuse(*save, Error(answer.error()).within(fmt::format("staging step {}", save->state.step)));
    }
  });
}

Result<std::optional<std::uint32_t>> Engine::Impl::take_slot(Clock::time_point deadline) {
  auto slot = wait_for_slot(deadline);
  hurry_agent(false);
  return slot;
}

Result<std::optional<std::uint32_t>> Engine::Impl::wait_for_slot(Clock::time_point deadline) {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const auto is_ready = [&] { return saves_.has_free_slot() || session_.is_lost; };
      if (options_.memory.when_busy == WhenBusy::wait && !is_ready()) {
        lock.unlock();
        hurry_agent(true);
        lock.lock();
        changed_.wait_until(lock, std::min(deadline, Clock::now() + kBetweenChecks), is_ready);
      }
      if (const auto slot = saves_.fill_slot()) {
        lock.unlock();
        arena_.send_readers_away(*slot);
        return slot;
      }
      if (options_.memory.when_busy == WhenBusy::skip && !session_.is_lost) return std::optional<std::uint32_t>();
    }
    BITSNAP_TRY(engine::check_interrupt(options_.interrupted));
    if (Clock::now() >= deadline) {
      return fail(ErrorKind::busy, fmt::format("no slot of the arena became free within {} ms: the agent, process {}, "
                                               "still works on earlier saves",
                                               options_.timeout_ms, agent_process()));
    }
    // The wait was too short, or the agent died. In the second case, the next agent works on what is in the slots.
    BITSNAP_TRY(connected(deadline));
  }
}

Result<void> Engine::Impl::fit_arena(const engine::SlotPlan& plan, Pages pages, Clock::time_point deadline) {
  // If the agent dies meanwhile, the next one gets the arena.
  auto fitted = with_agent(deadline, [&](const Link& link) { return fit_arena_of(link, plan, pages, deadline); });
  hurry_agent(false);
  return fitted;
}

// The agent refuses another arena until it has encoded the states in the slots of the present one.
Result<void> Engine::Impl::await_encoded(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  const auto is_quiet = [&] { return session_.is_lost || !saves_.is_encoding(); };
  while (!changed_.wait_until(lock, std::min(deadline, Clock::now() + kBetweenChecks), is_quiet)) {
    lock.unlock();
    hurry_agent(true);
    BITSNAP_TRY(engine::check_interrupt(options_.interrupted));
    lock.lock();
    if (Clock::now() < deadline) continue;
    return fail(
        ErrorKind::busy,
        fmt::format("the state has grown beyond the slots of {} bytes in the arena, which is still in use after {} ms",
                    arena_.get()->slot_bytes, options_.timeout_ms));
  }
  return {};
}

Result<void> Engine::Impl::fit_arena_of(const Link& link, const engine::SlotPlan& plan, Pages pages,
                                        Clock::time_point deadline) {
  if (!arena_.fits(plan)) {
    Result<void> chosen = arena_.choose_slots(plan);
    if (!chosen || arena_.has_fewer_slots()) {
      BITSNAP_TRY(give_back_agents_memory(link, {.step = kNoStep, .reads_store = true}, deadline));
      chosen = arena_.choose_slots(plan);
    }
    if (!chosen) return chosen;
  }
  const bool fits = arena_.fits(plan);
  {
    const std::lock_guard lock(mutex_);
    if (fits && session_.has_arena) return {};
  }
  engine::TrainerArena::Made made;
  if (!fits) {
    BITSNAP_TRY(await_encoded(deadline));
    BITSNAP_ASSIGN(made, arena_.make(plan, pages));
  }
  const engine::Arena& arena = fits ? *arena_.get() : *made.arena;
  for (;;) {
    auto offered = offer_arena(link, arena, deadline);
    if (offered) break;
    // The agent first encodes the states that the last trainer left in the slots.
    if (offered.error().kind() != ErrorKind::busy || Clock::now() >= deadline) return offered;
    hurry_agent(true);
    BITSNAP_TRY(engine::check_interrupt(options_.interrupted));
    std::this_thread::sleep_for(kBetweenArenas);
  }
  if (!fits) arena_.replace(std::move(made));
  {
    const std::lock_guard lock(mutex_);
    saves_.begin_arena(arena.slots);
  }
  return arena_.take_missing_pages(pages);
}

Result<void> Engine::Impl::give_back_agents_memory(const Link& link, const engine::FetchRequest& request,
                                                   Clock::time_point deadline) {
  // The answer is always an error. The caller measures what came of it.
  const auto answer = link->call(MessageKind::fetch, serialize_body(request), MessageKind::fetched,
                                 milliseconds_until(deadline), {}, options_.interrupted);
  if (!answer && answer.error().kind() == ErrorKind::cancelled) return tl::unexpected(answer.error());
  give_free_slots_back();
  return {};
}

void Engine::Impl::give_free_slots_back() {
  std::vector<std::uint32_t> free;
  {
    const std::lock_guard lock(mutex_);
    free = saves_.free_slots();
  }
  arena_.give_back(free);
}

}  // namespace bitsnap
