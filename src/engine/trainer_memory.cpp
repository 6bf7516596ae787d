// How much memory the arena may take: the number of its slots, and whether the present one can stay. Runs on the thread
// that saves.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/try.hpp"
#include "engine/trainer.hpp"

namespace bitsnap {
namespace {

// Spare room in a slot: a state may grow by this much, as lists of numbers in it do, without a new arena.
constexpr std::uint64_t kSpareShare = 256;
constexpr std::uint64_t kSpareBytes = std::uint64_t{1} << 20;
// What an arena of several slots leaves of the system's memory: this, and a part of the state.
constexpr std::uint64_t kSpareMemory = std::uint64_t{64} << 20;
constexpr std::uint64_t kSpareMemoryShare = 16;

std::string megabytes(std::uint64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6); }

// The size of an arena for this state; nullopt beyond 2^64.
std::optional<std::uint64_t> arena_size(const engine::SlotPlan& plan, std::uint32_t slots) {
  const std::uint64_t wanted = plan.bytes + plan.bytes / kSpareShare + kSpareBytes;
  const std::uint64_t slot_bytes = (wanted + engine::kSlotUnit - 1) / engine::kSlotUnit * engine::kSlotUnit;
  const auto all = checked_multiply(slot_bytes, std::uint64_t{slots});
  return all ? checked_add(*all, engine::kSlotUnit) : std::nullopt;
}

// What the agent takes beside the arena and compressed snapshots, which it writes to the disk if they do not fit.
std::uint64_t agent_bytes(const engine::SlotPlan& plan, unsigned threads) {
  constexpr std::uint64_t kProcessBytes = std::uint64_t{32} << 20;
  return kProcessBytes + engine::kTensorBytes * plan.offsets.size() + engine::coding_bytes(threads, plan.raw_bytes);
}

// An arena of several slots leaves the training some room to grow. With one slot, the alternative is not to save.
std::uint64_t spare_bytes(const engine::SlotPlan& plan, std::uint32_t slots,
                          const Result<os::AvailableMemory>& available) {
  if (slots == 1) return 0;
  return kSpareMemory + plan.raw_bytes / kSpareMemoryShare + (available ? available->free_bytes() : 0);
}

}  // namespace

bool Engine::Impl::is_arena_fit(const engine::SlotPlan& plan) {
  if (arena_ == nullptr || arena_->slot_bytes < plan.bytes || arena_->slots != wanted_slots_) return false;
  if (is_arena_checked_) return true;
  // An arena that an earlier trainer made. Some of its pages may be absent.
  const std::uint64_t absent = arena_->memory.size_bytes() - arena_->memory.present_bytes();
  const std::uint64_t needed = absent + agent_bytes(plan, agent_threads());
  const auto available = os::available_memory_for(needed + spare_bytes(plan, arena_->slots, memory_()), memory_);
  is_arena_checked_ = !available || available->available_bytes >= needed + spare_bytes(plan, arena_->slots, available);
  return is_arena_checked_;
}

Result<void> Engine::Impl::choose_slots(const engine::SlotPlan& plan) {
  // The present arena can go before the new one takes its memory. Otherwise it goes afterwards, so that a failure
  // changes nothing.
  std::string note;
  auto slots = affordable_slots(plan, 0, note);
  must_replace_arena_ = false;
  if (arena_ != nullptr && (!slots || *slots < options_.slots)) {
    std::string other_note;
    auto others = affordable_slots(plan, arena_->memory.present_bytes(), other_note);
    if (others && (!slots || *slots < *others)) {
      must_replace_arena_ = true;
      slots = std::move(others);
      note = std::move(other_note);
    }
  }
  if (!slots) return tl::unexpected(std::move(slots).error());
  wanted_slots_ = *slots;
  is_arena_checked_ = false;
  const std::lock_guard lock(mutex_);
  memory_note_ = std::move(note);
  return {};
}

Result<std::uint32_t> Engine::Impl::affordable_slots(const engine::SlotPlan& plan, std::uint64_t more_bytes,
                                                     std::string& note) const {
  const std::uint64_t names = engine::kTensorBytes * plan.offsets.size();
  const std::uint64_t agent = agent_bytes(plan, agent_threads());
  const std::uint64_t most =
      arena_size(plan, options_.slots).value_or(0) + agent + spare_bytes(plan, options_.slots, memory_());
  const auto available = os::available_memory_for(most, memory_);
  std::string reason;
  for (std::uint32_t slots = options_.slots; slots > 0; --slots) {
    const auto size = arena_size(plan, slots);
    if (!size) return fail(ErrorKind::resource_exhausted, "the state needs an arena of more than 2^64 bytes");
    const std::string needs = fmt::format("a state of {} needs an arena of {} ({} slot{})", megabytes(plan.raw_bytes),
                                          megabytes(*size), slots, slots > 1 ? "s" : "");
    if (options_.budget_bytes != 0 && *size + names > options_.budget_bytes) {
      reason = fmt::format("{} and {} for the names and shapes of its tensors, but the budget is {}", needs,
                           megabytes(names), megabytes(options_.budget_bytes));
    } else if (available &&
               available->available_bytes + more_bytes < *size + agent + spare_bytes(plan, slots, available)) {
      const std::uint64_t spare = spare_bytes(plan, slots, available);
      reason = fmt::format("{} and {} for compressing{}, but only {} are available ({})", needs, megabytes(agent),
                           spare == 0 ? "" : fmt::format(", and leaves {} free", megabytes(spare)),
                           megabytes(available->available_bytes + more_bytes), available->limit);
    } else {
      if (!reason.empty()) note = fmt::format("the arena has {} slot: {}", slots, reason);
      return slots;
    }
  }
  return fail(ErrorKind::resource_exhausted, std::move(reason));
}

Result<void> Engine::Impl::give_back_agents_memory(const Link& link, const engine::FetchRequest& request,
                                                   Clock::time_point deadline) {
  // The answer is always an error. The caller measures what came of it.
  const auto answer = link->call(engine::MessageKind::fetch, serialize_body(request), engine::MessageKind::fetched,
                                 engine::milliseconds_until(deadline), {}, options_.interrupted);
  if (!answer && answer.error().kind() == ErrorKind::cancelled) return tl::unexpected(answer.error());
  give_free_slots_back();
  return {};
}

void Engine::Impl::give_free_slots_back() {
  if (arena_ == nullptr) return;
  is_arena_checked_ = false;
  pages_ = pages_of(arena_);  // ends the threads that take pages
  const auto is_free = [&](std::size_t i) { return slots_[i].state == SlotState::free && slots_[i].chunks.expired(); };
  // A device would go on writing to the pages that a slot had. The pins call their makers, so they go without the lock.
  std::vector<std::shared_ptr<void>> pins;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (is_free(i)) pins.push_back(std::move(arena_->pins[i]));
    }
  }
  pins.clear();
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!is_free(i) || arena_->pins[i] != nullptr) continue;
    // If the system refuses, the next measurement tells.
    static_cast<void>(arena_->memory.give_back(engine::kSlotUnit + i * arena_->slot_bytes, arena_->slot_bytes));
  }
}

void Engine::Impl::drop_unused_arena() {
  const auto is_unused = [&] {
    const auto is_in_slot = [](const auto& save) { return save.second.slot && !save.second.state.is_over(); };
    return arena_ != nullptr && arena_link_ != link_number_ && std::ranges::none_of(saves_, is_in_slot);
  };
  std::vector<Slot> before;
  {
    const std::lock_guard lock(mutex_);
    if (!is_unused()) return;
    before = slots_;
  }
  for (const Slot& slot : before) send_readers_away(slot);
  pages_.reset();
  std::shared_ptr<Arena> unused;  // goes without the lock, as its pins call their makers
  const std::lock_guard lock(mutex_);
  for (auto& [ticket, save] : saves_) save.slot.reset();
  unused.swap(arena_);
  slots_.clear();
}

Result<std::shared_ptr<Engine::Impl::Arena>> Engine::Impl::make_arena(const engine::SlotPlan& plan,
                                                                      std::uint32_t slots) {
  const std::uint64_t size = *arena_size(plan, slots);
  BITSNAP_ASSIGN(os::SharedMemory memory, os::SharedMemory::create("bitsnap-arena", size));
  BITSNAP_ASSIGN(os::MappedMemory mapping, memory.map(os::MemoryAccess::read_write));
  mapping.prefer_huge_pages();
  return std::make_shared<Arena>(
      Arena{std::move(memory), std::move(mapping), slots, (size - engine::kSlotUnit) / slots});
}

std::string Engine::Impl::memory_note() const {
  if (is_forked()) return {};
  const std::lock_guard lock(mutex_);
  return memory_note_;
}

}  // namespace bitsnap
