// Staging: fits the arena, takes a free slot, copies the state, and tells the agent. Runs on the thread that saves,
// except on_taken(), which the link's receiving thread calls.
#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
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

constexpr auto kBetweenArenas = std::chrono::milliseconds(20);
constexpr std::size_t kMostRotated = 1000;                      // steps in one message, which has a limited size
constexpr auto kBetweenChecks = std::chrono::milliseconds(50);  // for interrupts

}  // namespace

Result<void> Engine::Impl::reserve(const State& state) {
  return no_throw("save", [&]() -> Result<void> {
    BITSNAP_TRY(check_process());
    const Clock::time_point deadline = engine::deadline_in(options_.wait_ms);
    BITSNAP_ASSIGN(const auto saving, lock_saving(deadline));
    BITSNAP_ASSIGN(const engine::SlotPlan plan, planner_.plan(state));
    BITSNAP_TRY(fit_arena(plan, Pages::all, deadline));
    BITSNAP_TRY(pages_->take(0, arena_->memory.size_bytes(), *executor_));
    for (std::uint32_t slot = 0; slot < arena_->slots; ++slot) pin_slot(slot, state);
    return {};
  });
}

Result<SaveState> Engine::Impl::save(std::uint64_t step, const State& state, bool persist) {
  BITSNAP_TRY(check_process());
  const os::Stopwatch whole;
  const Clock::time_point deadline = engine::deadline_in(options_.wait_ms);
  BITSNAP_ASSIGN(const auto saving, lock_saving(deadline));
  BITSNAP_ASSIGN(const engine::SlotPlan plan, planner_.plan(state));
  BITSNAP_TRY(fit_arena(plan, Pages::of_a_slot, deadline));

  const os::Stopwatch waiting;
  std::optional<std::uint32_t> slot;
  BITSNAP_ASSIGN(const bool is_wanted, is_decided_to_save(step));
  if (is_wanted) {
    BITSNAP_ASSIGN(slot, take_slot(deadline));
  }
  Save save;
  save.state.step = step;
  save.state.persist = persist;
  save.state.raw_bytes = plan.raw_bytes;
  save.state.wait_seconds = waiting.elapsed_seconds();
  save.state.ticket = ++last_ticket_;
  const auto remember = [&] {
    save.state.stall_seconds = whole.elapsed_seconds();
    const std::lock_guard lock(mutex_);
    forget_old();
    const SaveState known = save.state;
    saves_[known.ticket] = std::move(save);
    return known;
  };
  if (!slot) {
    save.state.stage = SaveStage::skipped;
    return remember();
  }
  const auto give_back = [&](Error error) -> Result<SaveState> {
    {
      const std::lock_guard lock(mutex_);
      slots_[*slot] = {};
    }
    changed_.notify_all();
    return tl::unexpected(std::move(error).within(fmt::format("staging step {}", step)));
  };
  if (auto taken = take_pages(*slot); !taken) return give_back(std::move(taken).error());
  const auto fill = [&]() -> Result<void> {
    pin_slot(*slot, state);
    return engine::fill_slot(state, plan, arena_->slot(*slot), *executor_);
  };
  if (auto filled = no_throw("staging", fill); !filled) return give_back(std::move(filled).error());

  // From here on the save is recorded: if the agent dies now, the next agent gets it.
  save.slot = slot;
  save.bytes = plan.bytes;
  save.is_new = is_new_step(step, persist);
  {
    const std::lock_guard lock(mutex_);
    slots_[*slot] = Slot{.state = SlotState::given, .ticket = save.state.ticket};
  }
  const engine::Staged staged{.ticket = save.state.ticket,
                              .slot = *slot,
                              .step = step,
                              .bytes = plan.bytes,
                              .persist = persist,
                              .again = false};
  SaveState known = remember();
  if (auto told = hand_over(known.ticket, staged, deadline); !told) {
    const std::lock_guard lock(mutex_);
    saves_.erase(known.ticket);
    slots_[*slot] = {};
    return tl::unexpected(std::move(told).error().within(fmt::format("staging step {}", step)));
  }
  // The pages of the other slot, for the next save. Half of the threads, as the training goes on.
  pages_->take_rest_in_background(std::max(1U, executor_->threads() / 2));
  known.stall_seconds = whole.elapsed_seconds();
  const std::lock_guard lock(mutex_);
  if (const auto found = saves_.find(known.ticket); found != saves_.end()) {
    found->second.state.stall_seconds = known.stall_seconds;
  }
  return known;
}

bool Engine::Impl::is_new_step(std::uint64_t step, bool persist) {
  if (!knows_store_) {
    const auto steps = read_store().and_then([](const auto& store) { return store->steps(); });
    knows_store_ = steps || steps.error().kind() == ErrorKind::not_found;
    if (steps && !steps->empty()) least_new_step_ = std::max(least_new_step_, steps->back() + 1);
  }
  const bool is_new = knows_store_ && step >= least_new_step_;
  if (persist) least_new_step_ = std::max(least_new_step_, step + 1);
  return is_new;
}

// Tells the agent that the save is staged; if the agent dies before it hears, tells the next one. Does not wait for the
// answer, because an agent with low priority may need a while.
Result<void> Engine::Impl::hand_over(std::uint64_t ticket, const engine::Staged& staged, Clock::time_point deadline) {
  for (;;) {
    BITSNAP_ASSIGN(const Link link, connected(deadline));
    bool has_arena = false;
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      const Save& save = saves_.at(ticket);
      // connected() may have handed the save over, and the save may be over by now.
      if (save.link == link_number_ || save.state.is_over()) return {};
      number = link_number_;
      has_arena = arena_link_ == link_number_;
    }
    Result<void> told;
    if (!has_arena) told = offer_arena(link, arena_, deadline);
    if (told) {
      {
        const std::lock_guard lock(mutex_);
        Save& save = saves_.at(ticket);
        save.link = number;
        save.was_told = true;
      }
      told = link->request(MessageKind::staged, serialize_body(staged), MessageKind::ok,
                           [this, number, ticket](const auto& answer) { on_taken(number, ticket, answer); });
    }
    if (told || !link->is_lost()) return told;
  }
}

void Engine::Impl::on_taken(std::uint64_t link, std::uint64_t ticket, const Result<engine::AgentLink::Answer>& answer) {
  if (answer) return;
  {
    const std::lock_guard lock(mutex_);
    const auto found = saves_.find(ticket);
    if (link != link_number_ || found == saves_.end() || found->second.state.is_over()) return;
    Save& save = found->second;
    if (answer.error().kind() == ErrorKind::not_found) {
      // An ending agent refuses new saves, but reports on earlier ones until it ends. The next agent gets the states
      // that are then still in a slot.
      save.was_told = false;
      return;
    }
    if (save.slot) slots_[*save.slot] = {};
    save.slot.reset();
    end_with(save, Error(answer.error()).within(fmt::format("staging step {}", save.state.step)));
  }
  changed_.notify_all();
}

void Engine::Impl::hurry_agent(bool waits) {
  if (is_forked()) return;
  Link link;
  {
    const std::lock_guard lock(mutex_);
    const bool is_told = hurried_link_ == link_number_;
    hurried_link_ = waits ? link_number_ : 0;
    if (is_lost_ || !is_hurrying_ || is_told == waits) return;
    link = link_;
  }
  if (link != nullptr) link->post(MessageKind::hurry, serialize_body(engine::Hurry{waits}));
}

bool Engine::Impl::rotate(std::span<const std::uint64_t> removed, std::optional<std::uint64_t> keep_last) {
  if (is_forked()) return false;
  Link link;
  {
    const std::lock_guard lock(mutex_);
    if (is_lost_ || !is_rotating_) return false;
    link = link_;
  }
  if (link == nullptr) return false;
  do {
    const auto some = removed.first(std::min(removed.size(), kMostRotated));
    removed = removed.subspan(some.size());
    link->post(MessageKind::rotate,
               serialize_body(engine::Rotation{.removed = {some.begin(), some.end()}, .keep_last = keep_last}));
  } while (!removed.empty());
  return true;
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
      const auto find_free = [&] { return std::ranges::find(slots_, SlotState::free, &Slot::state); };
      const auto is_ready = [&] { return find_free() != slots_.end() || is_lost_; };
      if (options_.when_busy == WhenBusy::wait && !is_ready()) {
        lock.unlock();
        hurry_agent(true);
        lock.lock();
        changed_.wait_until(lock, std::min(deadline, Clock::now() + kBetweenChecks), is_ready);
      }
      if (const auto free = find_free(); free != slots_.end()) {
        const Slot before = std::exchange(*free, Slot{.state = SlotState::filling});
        lock.unlock();
        send_readers_away(before);
        return std::optional(static_cast<std::uint32_t>(free - slots_.begin()));
      }
      if (options_.when_busy == WhenBusy::skip && !is_lost_) return std::optional<std::uint32_t>();
    }
    BITSNAP_TRY(engine::check_interrupt(options_.interrupted));
    if (Clock::now() >= deadline) {
      return fail(ErrorKind::busy, fmt::format("no slot of the arena became free within {} ms: the agent, process {}, "
                                               "still works on earlier saves",
                                               options_.wait_ms, agent_process()));
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
  const auto is_quiet = [&] {
    return is_lost_ || std::ranges::none_of(slots_, [&](const Slot& slot) {
             const auto save = slot.ticket ? saves_.find(*slot.ticket) : saves_.end();
             return save != saves_.end() && save->second.state.stage == SaveStage::staged;
           });
  };
  while (!changed_.wait_until(lock, std::min(deadline, Clock::now() + kBetweenChecks), is_quiet)) {
    lock.unlock();
    hurry_agent(true);
    BITSNAP_TRY(engine::check_interrupt(options_.interrupted));
    lock.lock();
    if (Clock::now() < deadline) continue;
    return fail(
        ErrorKind::busy,
        fmt::format("the state has grown beyond the slots of {} bytes in the arena, which is still in use after {} ms",
                    arena_->slot_bytes, options_.wait_ms));
  }
  return {};
}

Result<void> Engine::Impl::fit_arena_of(const Link& link, const engine::SlotPlan& plan, Pages pages,
                                        Clock::time_point deadline) {
  std::shared_ptr<Arena> arena = arena_;
  std::unique_ptr<engine::PageTaker> taker;
  if (!is_arena_fit(plan)) {
    Result<void> chosen = choose_slots(plan);
    if (!chosen || wanted_slots_ < options_.slots) {
      BITSNAP_TRY(give_back_agents_memory(link, {.step = kNoStep, .reads_store = true}, deadline));
      chosen = choose_slots(plan);
    }
    if (!chosen) return chosen;
  }
  const bool fits = is_arena_fit(plan);
  {
    const std::lock_guard lock(mutex_);
    if (fits && arena_link_ == link_number_) return {};
  }
  if (!fits) {
    BITSNAP_TRY(await_encoded(deadline));
    BITSNAP_ASSIGN(arena, make_arena(plan, wanted_slots_));
    taker = pages_of(arena);
    // The pages are taken before the agent gets the arena, so that a failure leaves nothing allocated. If the memory
    // does not suffice for both arenas, the agent first replaces the present one, after it has encoded its states.
    if (!must_replace_arena_) BITSNAP_TRY(take_pages_of(*arena, *taker, pages));
  }
  for (;;) {
    auto offered = offer_arena(link, arena, deadline);
    if (offered) break;
    // The agent first encodes the states that the last trainer left in the slots.
    if (offered.error().kind() != ErrorKind::busy || Clock::now() >= deadline) return offered;
    hurry_agent(true);
    BITSNAP_TRY(engine::check_interrupt(options_.interrupted));
    std::this_thread::sleep_for(kBetweenArenas);
  }
  std::vector<Slot> before;
  if (arena != arena_) before = slots_;
  for (const Slot& slot : before) send_readers_away(slot);
  if (taker != nullptr) {
    pages_ = std::move(taker);
    is_arena_checked_ = !must_replace_arena_;
  }
  {
    const std::lock_guard lock(mutex_);
    for (Slot& slot : slots_) {
      if (slot.ticket && saves_.contains(*slot.ticket)) saves_.at(*slot.ticket).slot.reset();
    }
    arena_.swap(arena);
    slots_.assign(arena_->slots, {});
  }
  arena.reset();  // the last one: without the lock, as its pins call their makers
  if (is_arena_checked_) return {};
  BITSNAP_TRY(take_pages_of(*arena_, *pages_, pages));
  is_arena_checked_ = true;
  return {};
}

Result<void> Engine::Impl::take_pages_of(const Arena& arena, engine::PageTaker& taker, Pages pages) {
  const std::uint64_t slots = pages == Pages::all ? arena.slots : 1;
  return taker.take(0, engine::kSlotUnit + slots * arena.slot_bytes, *executor_);
}

std::unique_ptr<engine::PageTaker> Engine::Impl::pages_of(const std::shared_ptr<Arena>& arena) {
  return std::make_unique<engine::PageTaker>(
      arena->memory.size_bytes(),
      [arena](std::uint64_t offset, std::uint64_t bytes) { return arena->mapping.populate(offset, bytes); });
}

Result<void> Engine::Impl::take_pages(std::uint32_t slot) {
  return pages_->take(engine::kSlotUnit + slot * arena_->slot_bytes, arena_->slot_bytes, *executor_);
}

void Engine::Impl::pin_slot(std::uint32_t slot, const State& state) {
  std::shared_ptr<void>& pin = arena_->pins[slot];
  if (pin != nullptr || !state.device_tensors || state.device_tensors->pin == nullptr) return;
  pin = state.device_tensors->pin(arena_->slot(slot));
}

}  // namespace bitsnap
