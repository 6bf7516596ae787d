// The progress of saves: events from the agent, the death of an agent, and the calls that wait for either. The link's
// receiving thread calls on_progress() and on_lost().
#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "engine/trainer.hpp"

namespace bitsnap {

void Engine::Impl::on_progress(std::uint64_t link, const engine::ProgressEvent& event) {
  change([&] {
    if (link != session_.number) return;
    session_.is_silent = false;
    saves_.apply(event);
  });
}

void Engine::Impl::on_lost(std::uint64_t link, const Error& error) {
  change([&] {
    if (link != session_.number) return;
    session_.is_lost = true;
    saves_.lose(error);
  });
}

void Engine::Impl::settle_lost() {
  {
    const std::lock_guard lock(mutex_);
    if (!saves_.has_lost()) return;
  }
  // The agent may have committed steps before it could report them.
  std::vector<std::uint64_t> steps;
  if (const auto store = store_.open()) steps = (*store)->steps().value_or(std::vector<std::uint64_t>());
  change([&] { saves_.settle_lost(steps); });
}

Result<SaveState> Engine::Impl::look(std::uint64_t ticket) {
  BITSNAP_TRY(check_process());
  const std::lock_guard lock(mutex_);
  const engine::TrainerSave* const save = saves_.find(ticket);
  if (save == nullptr) return fail(ErrorKind::not_found, fmt::format("unknown ticket {}", ticket));
  return save->state;
}

Result<SaveState> Engine::Impl::wait(std::uint64_t ticket, SaveStage stage, std::uint64_t timeout_ms, bool is_urgent) {
  auto waited = wait_until(ticket, stage, timeout_ms, is_urgent);
  if (is_urgent) hurry_agent(false);
  return waited;
}

Result<SaveState> Engine::Impl::wait_until(std::uint64_t ticket, SaveStage stage, std::uint64_t timeout_ms,
                                           bool is_urgent) {
  const Clock::time_point deadline = engine::deadline_in(timeout_ms);
  for (;;) {
    BITSNAP_ASSIGN(SaveState state, look(ticket));
    if (state.is_over() || state.stage >= stage) return state;
    BITSNAP_TRY(engine::check_interrupt(options_.interrupted));
    if (Clock::now() >= deadline) {
      return fail(ErrorKind::busy, fmt::format("step {} is still '{}' after {} ms, expected '{}'", state.step,
                                               save_stage_name(state.stage), timeout_ms, save_stage_name(stage)));
    }
    if (is_urgent) hurry_agent(true);
    BITSNAP_TRY(wait_for_change(deadline));
  }
}

Result<void> Engine::Impl::wait_all(std::uint64_t timeout_ms) {
  auto waited = wait_until_all_over(timeout_ms);
  hurry_agent(false);
  return waited;
}

Result<void> Engine::Impl::wait_until_all_over(std::uint64_t timeout_ms) {
  BITSNAP_TRY(check_process());
  const Clock::time_point deadline = engine::deadline_in(timeout_ms);
  for (;;) {
    std::size_t left = 0;
    {
      const std::lock_guard lock(mutex_);
      left = saves_.unfinished();
    }
    if (left == 0) return {};
    BITSNAP_TRY(engine::check_interrupt(options_.interrupted));
    if (Clock::now() >= deadline) {
      return fail(ErrorKind::busy, fmt::format("{} saves are still unfinished after {} ms", left, timeout_ms));
    }
    hurry_agent(true);
    BITSNAP_TRY(wait_for_change(deadline));
  }
}

// Waits until something changed, at most 200 ms. If the agent died, connects to the next one.
Result<void> Engine::Impl::wait_for_change(Clock::time_point deadline) {
  {
    std::unique_lock lock(mutex_);
    if (!session_.is_lost) changed_.wait_until(lock, std::min(deadline, Clock::now() + std::chrono::milliseconds(200)));
    if (!session_.is_lost) return {};
  }
  const std::unique_lock saving(save_mutex_, std::try_to_lock);
  if (!saving) {  // the thread that holds it connects
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return {};
  }
  auto link = connected(deadline);
  if (link) return {};
  // The next agent may be late, or the old one may still be ending: try again.
  if (link.error().kind() == ErrorKind::busy || link.error().kind() == ErrorKind::cancelled) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return {};
  }
  // Without an agent, unfinished saves cannot proceed.
  const std::lock_guard lock(mutex_);
  saves_.end_all(link.error());
  return {};
}

std::vector<SaveState> Engine::Impl::take_failures() {
  if (is_forked()) return {};
  const std::lock_guard lock(mutex_);
  return saves_.take_failures();
}

std::int64_t Engine::Impl::agent_process() const {
  if (is_forked()) return 0;
  const Link link = this->link();
  return link == nullptr ? 0 : link->agent_process();
}

Engine::Impl::Link Engine::Impl::link_that_knows(bool engine::Welcome::* message) const {
  if (is_forked()) return nullptr;
  const std::lock_guard lock(mutex_);
  return session_.is_lost || !(session_.welcome.*message) ? nullptr : session_.link;
}

void Engine::Impl::hurry_agent(bool waits) {
  if (is_forked()) return;
  const Link link = link_that_knows(&engine::Welcome::hurries);
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(session_.is_hurried, waits) == waits) return;
  }
  if (link != nullptr) link->post(engine::MessageKind::hurry, serialize_body(engine::Hurry{waits}));
}

bool Engine::Impl::rotate(std::span<const std::uint64_t> removed, std::optional<std::uint64_t> keep_last) {
  constexpr std::size_t kMostRotated = 1000;  // steps in one message, which has a limited size
  const Link link = link_that_knows(&engine::Welcome::rotates);
  if (link == nullptr) return false;
  do {
    const auto some = removed.first(std::min(removed.size(), kMostRotated));
    removed = removed.subspan(some.size());
    link->post(engine::MessageKind::rotate,
               serialize_body(engine::Rotation{.removed = {some.begin(), some.end()}, .keep_last = keep_last}));
  } while (!removed.empty());
  return true;
}

}  // namespace bitsnap
