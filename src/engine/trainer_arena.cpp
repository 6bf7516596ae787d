#include "engine/trainer_arena.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/try.hpp"
#include "os/process.hpp"

namespace bitsnap::engine {
namespace {

// Spare room in a slot: a state may grow by this much, as lists of numbers in it do, without a new arena.
constexpr std::uint64_t kSpareShare = 256;
constexpr std::uint64_t kSpareBytes = std::uint64_t{1} << 20;
// What an arena of several slots leaves of the system's memory: this, and a part of the state.
constexpr std::uint64_t kSpareMemory = std::uint64_t{64} << 20;
constexpr std::uint64_t kSpareMemoryShare = 16;

std::string megabytes(std::uint64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6); }

// The size of an arena for this state; nullopt beyond 2^64.
std::optional<std::uint64_t> arena_size(const SlotPlan& plan, std::uint32_t slots) {
  const std::uint64_t wanted = plan.bytes + plan.bytes / kSpareShare + kSpareBytes;
  const std::uint64_t slot_bytes = (wanted + kSlotUnit - 1) / kSlotUnit * kSlotUnit;
  const auto all = checked_multiply(slot_bytes, std::uint64_t{slots});
  return all ? checked_add(*all, kSlotUnit) : std::nullopt;
}

// What the agent takes beside the arena and compressed snapshots, which it writes to the disk if they do not fit.
std::uint64_t agent_bytes(const SlotPlan& plan, unsigned threads) {
  constexpr std::uint64_t kProcessBytes = std::uint64_t{32} << 20;
  return kProcessBytes + kTensorBytes * plan.offsets.size() + coding_bytes(threads, plan.raw_bytes);
}

// An arena of several slots leaves the training some room to grow. With one slot, the alternative is not to save.
std::uint64_t spare_bytes(const SlotPlan& plan, std::uint32_t slots, const Result<os::AvailableMemory>& available) {
  if (slots == 1) return 0;
  return kSpareMemory + plan.raw_bytes / kSpareMemoryShare + (available ? available->free_bytes() : 0);
}

std::unique_ptr<PageTaker> pages_of(const std::shared_ptr<Arena>& arena) {
  return std::make_unique<PageTaker>(arena->memory.size_bytes(), [arena](std::uint64_t offset, std::uint64_t bytes) {
    return arena->mapping.populate(offset, bytes);
  });
}

}  // namespace

bool TrainerArena::fits(const SlotPlan& plan) {
  if (arena_ == nullptr || arena_->slot_bytes < plan.bytes || arena_->slots != wanted_slots_) return false;
  if (is_checked_) return true;
  // An arena that an earlier trainer made. Some of its pages may be absent.
  const std::uint64_t absent = arena_->memory.size_bytes() - arena_->memory.present_bytes();
  const std::uint64_t needed = absent + agent_bytes(plan, agent_threads());
  const auto available = os::available_memory_for(needed + spare_bytes(plan, arena_->slots, memory_()), memory_);
  is_checked_ = !available || available->available_bytes >= needed + spare_bytes(plan, arena_->slots, available);
  return is_checked_;
}

Result<void> TrainerArena::choose_slots(const SlotPlan& plan) {
  // The present arena can go before the new one takes its memory. Otherwise it goes afterwards, so that a failure
  // changes nothing.
  std::string note;
  auto slots = affordable_slots(plan, 0, note);
  must_replace_ = false;
  if (arena_ != nullptr && (!slots || *slots < options_.memory.slots)) {
    std::string other_note;
    auto others = affordable_slots(plan, arena_->memory.present_bytes(), other_note);
    if (others && (!slots || *slots < *others)) {
      must_replace_ = true;
      slots = std::move(others);
      note = std::move(other_note);
    }
  }
  if (!slots) return tl::unexpected(std::move(slots).error());
  wanted_slots_ = *slots;
  is_checked_ = false;
  const std::lock_guard lock(mutex_);
  note_ = std::move(note);
  return {};
}

Result<std::uint32_t> TrainerArena::affordable_slots(const SlotPlan& plan, std::uint64_t more_bytes,
                                                     std::string& note) const {
  const std::uint64_t names = kTensorBytes * plan.offsets.size();
  const std::uint64_t agent = agent_bytes(plan, agent_threads());
  const std::uint64_t most =
      arena_size(plan, options_.memory.slots).value_or(0) + agent + spare_bytes(plan, options_.memory.slots, memory_());
  const auto available = os::available_memory_for(most, memory_);
  std::string reason;
  for (std::uint32_t slots = options_.memory.slots; slots > 0; --slots) {
    const auto size = arena_size(plan, slots);
    if (!size) return fail(ErrorKind::resource_exhausted, "the state needs an arena of more than 2^64 bytes");
    const std::string needs = fmt::format("a state of {} needs an arena of {} ({} slot{})", megabytes(plan.raw_bytes),
                                          megabytes(*size), slots, slots > 1 ? "s" : "");
    if (options_.memory.budget_bytes != 0 && *size + names > options_.memory.budget_bytes) {
      reason = fmt::format("{} and {} for the names and shapes of its tensors, but the budget is {}", needs,
                           megabytes(names), megabytes(options_.memory.budget_bytes));
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

Result<TrainerArena::Made> TrainerArena::make(const SlotPlan& plan, Pages pages) {
  const std::uint64_t size = *arena_size(plan, wanted_slots_);
  BITSNAP_ASSIGN(os::SharedMemory memory, os::SharedMemory::create("bitsnap-arena", size));
  BITSNAP_ASSIGN(os::MappedMemory mapping, memory.map(os::MemoryAccess::read_write));
  mapping.prefer_huge_pages();
  Made made;
  made.arena = std::make_shared<Arena>(
      Arena{std::move(memory), std::move(mapping), wanted_slots_, (size - kSlotUnit) / wanted_slots_});
  made.pages = pages_of(made.arena);
  if (!must_replace_) BITSNAP_TRY(take(*made.arena, *made.pages, pages));
  return made;
}

void TrainerArena::put(std::shared_ptr<Arena> arena) {
  for (std::uint32_t i = 0; i < slots_.size(); ++i) send_readers_away(i);
  slots_ = std::vector<Slot>(arena == nullptr ? 0 : arena->slots);  // without the lock, as pins call their makers
  const std::lock_guard lock(mutex_);
  arena_ = std::move(arena);
}

void TrainerArena::replace(Made made) {
  put(std::move(made.arena));
  pages_ = std::move(made.pages);
  is_checked_ = !must_replace_;
}

bool TrainerArena::adopt(os::Descriptor descriptor, const Welcome& welcome) {
  const std::uint64_t size = kSlotUnit + welcome.slots.size() * welcome.slot_bytes;
  if (welcome.slots.empty() || welcome.slots.size() > options_.memory.slots) return false;
  if (options_.memory.budget_bytes != 0 && size > options_.memory.budget_bytes) return false;
  auto memory = os::SharedMemory::adopt(std::move(descriptor), size);
  if (!memory || memory->size_bytes() != size) return false;
  auto mapping = memory->map(os::MemoryAccess::read_write);
  if (!mapping) return false;
  put(std::make_shared<Arena>(Arena{std::move(*memory), std::move(*mapping),
                                    static_cast<std::uint32_t>(welcome.slots.size()), welcome.slot_bytes}));
  pages_ = pages_of(arena_);
  is_checked_ = false;
  return true;
}

void TrainerArena::drop() {
  pages_.reset();
  put(nullptr);
}

Result<void> TrainerArena::take(const Arena& arena, PageTaker& taker, Pages pages) {
  return taker.take(0, arena.offset_of(pages == Pages::all ? arena.slots : 1), executor_);
}

Result<void> TrainerArena::take_missing_pages(Pages pages) {
  if (is_checked_ && pages == Pages::of_a_slot) return {};
  BITSNAP_TRY(take(*arena_, *pages_, pages));
  is_checked_ = true;
  return {};
}

Result<void> TrainerArena::take_pages(std::uint32_t slot) {
  return pages_->take(arena_->offset_of(slot), arena_->slot_bytes, executor_);
}

void TrainerArena::take_rest_in_background() { pages_->take_rest_in_background(std::max(1U, executor_.threads() / 2)); }

void TrainerArena::pin(std::uint32_t slot, const State& state) {
  std::shared_ptr<void>& pin = slots_[slot].pin;
  if (pin != nullptr || !state.device_tensors || state.device_tensors->pin == nullptr) return;
  pin = state.device_tensors->pin(arena_->writable_slot(slot));
}

void TrainerArena::read_by(std::uint32_t slot, std::weak_ptr<restore::DecodedState> chunks,
                           std::weak_ptr<const FetchedSnapshots> files) {
  slots_[slot].chunks = std::move(chunks);
  slots_[slot].files = std::move(files);
}

void TrainerArena::send_readers_away(std::uint32_t slot) {
  const auto readers = std::exchange(slots_[slot].chunks, {}).lock();
  const auto files = std::exchange(slots_[slot].files, {}).lock();
  // If whole() fails, the readers get the error when they read.
  if (readers != nullptr && files != nullptr) static_cast<void>(files->whole());
  if (readers != nullptr) readers->release();
}

void TrainerArena::give_back(const std::vector<std::uint32_t>& free_slots) {
  if (arena_ == nullptr) return;
  is_checked_ = false;
  pages_ = pages_of(arena_);  // ends the threads that take pages
  for (const std::uint32_t slot : free_slots) {
    if (!slots_[slot].chunks.expired()) continue;
    slots_[slot].pin.reset();  // the device would go on writing to the pages that the slot had
    // If the system refuses, the next measurement tells.
    static_cast<void>(arena_->memory.give_back(arena_->offset_of(slot), arena_->slot_bytes));
  }
}

unsigned TrainerArena::agent_threads() const {
  return options_.agent.threads != 0 ? options_.agent.threads : std::max(1U, os::usable_threads() / 2);
}

std::uint64_t TrainerArena::size_bytes() const {
  const std::lock_guard lock(mutex_);
  return arena_ == nullptr ? 0 : arena_->memory.size_bytes();
}

std::string TrainerArena::note() const {
  const std::lock_guard lock(mutex_);
  return note_;
}

}  // namespace bitsnap::engine
