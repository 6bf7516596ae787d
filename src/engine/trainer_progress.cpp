// The progress of saves: events from the agent, the death of an agent, and the calls that wait for either. The link's
// receiving thread calls on_progress() and on_lost().
#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "engine/trainer.hpp"
#include "os/process.hpp"

namespace bitsnap {
namespace {

// Finished saves that look() still finds.
constexpr std::size_t kMaxRemembered = 1024;

}  // namespace

void Engine::Impl::on_progress(std::uint64_t link, const engine::ProgressEvent& event) {
  {
    const std::lock_guard lock(mutex_);
    if (link != link_number_) return;
    is_silent_ = false;
    const auto found = saves_.find(event.ticket);
    if (found != saves_.end() && event.stage && !found->second.state.is_over()) {
      SaveState& state = found->second.state;
      if (event.raw_bytes != 0) state.raw_bytes = event.raw_bytes;
      if (event.stored_bytes != 0) state.stored_bytes = event.stored_bytes;
      if (event.base) state.base = event.base;
      if (event.encode_us != 0) state.encode_seconds = static_cast<double>(event.encode_us) * 1e-6;
      if (event.write_us != 0) state.write_seconds = static_cast<double>(event.write_us) * 1e-6;
      switch (*event.stage) {
        case engine::Stage::memory:
          state.stage = SaveStage::memory;
          state.has_reached_memory = true;
          break;
        case engine::Stage::persisted: state.stage = SaveStage::persisted; break;
        case engine::Stage::failed:
          if (event.skipped) {
            state.stage = SaveStage::skipped;
            break;
          }
          end_with(found->second, event.error.value_or(Error(ErrorKind::internal, "failed")));
          break;
      }
    }
    if (event.free && slots_.empty() && early_frees_.size() < engine::kMaxSlots) early_frees_.push_back(*event.free);
    if (event.free && *event.free < slots_.size()) {
      Slot& slot = slots_[*event.free];
      if (slot.ticket) {
        if (const auto save = saves_.find(*slot.ticket); save != saves_.end()) save->second.slot.reset();
      }
      slot.state = SlotState::free;  // restored snapshots read from it until it is written
      slot.ticket.reset();
    }
  }
  changed_.notify_all();
}

void Engine::Impl::on_lost(std::uint64_t link, const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (link != link_number_) return;
    is_lost_ = true;
    // A save that is no longer in a slot cannot be staged again.
    for (auto& [ticket, save] : saves_) {
      if (save.state.is_over() || save.slot || save.lost) continue;
      save.lost = Error(error.kind(),
                        fmt::format("step {} was compressed but not persisted: {}", save.state.step, error.message()));
    }
    for (Slot& slot : slots_) {
      const bool is_needed = slot.ticket && saves_.contains(*slot.ticket) && !saves_.at(*slot.ticket).state.is_over();
      if (slot.state != SlotState::given || is_needed) continue;
      slot.state = SlotState::free;
      slot.ticket.reset();
    }
  }
  changed_.notify_all();
}

void Engine::Impl::settle_lost() {
  const auto is_lost = [](const auto& save) { return save.second.lost && !save.second.state.is_over(); };
  {
    const std::lock_guard lock(mutex_);
    if (std::ranges::none_of(saves_, is_lost)) return;
  }
  // The agent may have committed steps before it could report them.
  std::vector<std::uint64_t> steps;
  if (const auto store = read_store()) {
    steps = (*store)->steps().value_or(std::vector<std::uint64_t>());
  }
  {
    const std::lock_guard lock(mutex_);
    for (auto& [ticket, save] : saves_) {
      if (!save.lost || save.state.is_over()) continue;
      if (save.is_new && std::ranges::binary_search(steps, save.state.step)) {
        save.state.stage = SaveStage::persisted;
      } else {
        end_with(save, *save.lost);
      }
    }
  }
  changed_.notify_all();
}

void Engine::Impl::end_with(Save& save, Error error) {
  save.state.stage = SaveStage::failed;
  save.state.error = std::move(error);
  failures_.push_back(save.state);
  constexpr std::size_t kMaxFailures = 256;
  if (failures_.size() > kMaxFailures) failures_.erase(failures_.begin());
}

void Engine::Impl::forget_old() {
  for (auto each = saves_.begin(); saves_.size() > kMaxRemembered && each != saves_.end();) {
    each = each->second.state.is_over() && !each->second.slot ? saves_.erase(each) : std::next(each);
  }
}

Result<SaveState> Engine::Impl::look(std::uint64_t ticket) const {
  BITSNAP_TRY(check_process());
  const std::lock_guard lock(mutex_);
  const auto found = saves_.find(ticket);
  if (found == saves_.end()) return fail(ErrorKind::not_found, fmt::format("unknown ticket {}", ticket));
  return found->second.state;
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
      left = static_cast<std::size_t>(
          std::ranges::count_if(saves_, [](const auto& save) { return !save.second.state.is_over(); }));
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
    if (!is_lost_) {
      changed_.wait_until(lock, std::min(deadline, Clock::now() + std::chrono::milliseconds(200)));
    }
    if (!is_lost_) return {};
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
  {
    const std::lock_guard lock(mutex_);
    for (auto& [ticket, save] : saves_) {
      if (save.state.is_over()) continue;
      end_with(save, link.error());
    }
  }
  return {};
}

std::vector<SaveState> Engine::Impl::take_failures() {
  if (is_forked()) return {};
  const std::lock_guard lock(mutex_);
  return std::exchange(failures_, {});
}

std::int64_t Engine::Impl::agent_process() const {
  if (is_forked()) return 0;
  const Link link = this->link();
  return link == nullptr ? 0 : link->agent_process();
}

std::uint64_t Engine::Impl::arena_bytes() const {
  if (is_forked()) return 0;
  const std::lock_guard lock(mutex_);
  return arena_ == nullptr ? 0 : arena_->memory.size_bytes();
}

}  // namespace bitsnap
