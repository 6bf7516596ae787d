// The queue, the arena and the two threads of a rank.
#include "engine/agent_rank.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "engine/slot_layout.hpp"
#include "os/memory.hpp"

namespace bitsnap::engine {
namespace {

// Limit for queued saves and fetches. A correct trainer stages at most one save per slot.
constexpr std::size_t kMaxWork = 64;
// What the agent leaves free of the system's memory when it keeps snapshots: a training needs more at some times.
constexpr std::uint64_t kFreeBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kFreeShare = 16;  // and this part of a state
// How many of the saves that ended are reported.
constexpr std::size_t kMaxEnded = 64;
constexpr auto kFirstCommitWait = std::chrono::milliseconds(20);
constexpr auto kLongestCommitWait = std::chrono::milliseconds(2000);

}  // namespace

AgentRank::AgentRank(Job& job, const Hello& hello, ProgressSink& sink)
    : job_(job), sink_(sink), rank_(hello.rank), executor_(exec::make_executor(job.threads)) {
  settings_ = hello.settings;
  writer_ = std::thread([this] { run_writer(); });
  encoder_ = std::thread([this] { run_encoder(); });
}

AgentRank::~AgentRank() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  encoder_.join();
  writer_.join();
}

AgentRank::ArenaView AgentRank::renew(const Hello& hello) {
  const std::lock_guard lock(mutex_);
  must_reopen_ |= !(settings_ == hello.settings);
  settings_ = hello.settings;
  is_rotated_ = false;
  budget_bytes_ = hello.budget_bytes;
  memory_snapshots_ = std::max(1U, hello.memory_snapshots);
  cache_->set_limits(memory_limits());
  ArenaView view;
  view.trainer = ++trainer_;
  totals_.ended.clear();
  auto descriptor = arena_ ? arena_->memory.duplicate() : Result<os::Descriptor>(os::Descriptor());
  if (!arena_ || !descriptor) return view;
  view.descriptor = std::move(*descriptor);
  view.slot_bytes = arena_->slot_bytes;
  for (const Slot& slot : slots_) {
    view.slots.push_back({.is_held = slot.state != SlotState::free, .step = slot.step});
  }
  return view;
}

store::BaseCache::Limits AgentRank::memory_limits() const {
  const std::uint64_t arena = arena_ ? arena_->memory.size_bytes() : 0;
  const std::uint64_t raw = arena_ ? arena_->slot_bytes : 0;
  const std::uint64_t used = arena + kTensorBytes * tensors_;
  const std::uint64_t bytes = budget_bytes_ == 0 ? raw : budget_bytes_ - std::min(budget_bytes_, used);
  return {.snapshots = memory_snapshots_, .bytes = bytes, .free_bytes = kFreeBytes + raw / kFreeShare};
}

Result<void> AgentRank::set_arena(os::SharedMemory memory, const ArenaOffer& offer) {
  const std::uint64_t expected = kSlotUnit + offer.slots * offer.slot_bytes;
  const bool is_round = offer.slot_bytes > 0 && offer.slot_bytes % kSlotUnit == 0;
  if (!is_round || expected / std::max<std::uint64_t>(offer.slot_bytes, 1) < offer.slots ||
      memory.size_bytes() != expected) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("arena of {0} bytes for {1} slots of {2} bytes: the size of a slot must be a multiple of "
                            "{3}, and the arena must have {3} bytes more than its slots",
                            memory.size_bytes(), offer.slots, offer.slot_bytes, kSlotUnit));
  }
  BITSNAP_ASSIGN(os::MappedMemory mapping, memory.map(os::MemoryAccess::read));
  const std::lock_guard lock(mutex_);
  for (const Slot& slot : slots_) {
    if (slot.state == SlotState::queued) {
      return fail(
          ErrorKind::busy,
          fmt::format("the current arena is in use: step {} is waiting to be encoded or being encoded", slot.step));
    }
  }
  for (const Slot& slot : slots_) {
    if (slot.chunks != nullptr) slot.chunks->release();
  }
  arena_ = Arena{std::move(memory), offer.slot_bytes, std::make_shared<const os::MappedMemory>(std::move(mapping))};
  slots_.assign(offer.slots, {});
  cache_->set_restorable(std::nullopt);
  cache_->set_limits(memory_limits());
  return {};
}

Result<void> AgentRank::stage(const Staged& staged) {
  {
    const std::lock_guard lock(mutex_);
    if (staged.slot >= slots_.size()) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("slot must be below {}, got {}", slots_.size(), staged.slot));
    }
    Slot& slot = slots_[staged.slot];
    if (slot.state != SlotState::free) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("slot {} is still in use for step {}", staged.slot, slot.step));
    }
    if (staged.bytes > arena_->slot_bytes || work_.size() >= kMaxWork) {
      return fail(
          ErrorKind::invalid_argument,
          fmt::format("cannot stage {} bytes in a slot of {} bytes with {} requests queued; the limit is {} requests",
                      staged.bytes, arena_->slot_bytes, work_.size(), kMaxWork));
    }
    // join() must be called once per accepted save, in order, so it comes after the checks.
    std::string attempt;
    if (job_.world_size > 1) attempt = job_.attempts.join(staged.step, rank_);
    std::erase_if(totals_.ended, [&](const EndedSave& each) { return each.step == staged.step; });
    slot = {.state = SlotState::queued, .step = staged.step, .id = {}};
    const ConstByteSpan bytes =
        arena_->mapping->bytes().subspan(static_cast<std::size_t>(kSlotUnit + staged.slot * arena_->slot_bytes),
                                         static_cast<std::size_t>(arena_->slot_bytes));
    work_.emplace_back(QueuedSave{staged, std::move(attempt), bytes, arena_->mapping, ++taken_, job_.attempts.now()});
  }
  changed_.notify_all();
  return {};
}

std::optional<std::size_t> AgentRank::free_slots() const {
  const std::lock_guard lock(mutex_);
  if (!arena_) return std::nullopt;
  return static_cast<std::size_t>(std::ranges::count(slots_, SlotState::free, &Slot::state));
}

void AgentRank::fetch(const FetchRequest& request, FetchDone done) {
  {
    const std::lock_guard lock(mutex_);
    work_.emplace_back(QueuedFetch{request, std::move(done)});
  }
  changed_.notify_all();
}

std::vector<std::pair<std::uint64_t, std::string>> AgentRank::memory_attempts() const {
  auto kept = cache_->attempts();
  // A snapshot may be in the cache without its bases, if only an earlier agent had them.
  std::erase_if(kept, [this](const auto& each) { return !cache_->chain(each.first); });
  const std::lock_guard lock(mutex_);
  for (const Slot& slot : slots_) {
    if (slot.state != SlotState::held || slot.frame == nullptr) continue;
    const auto place = std::ranges::lower_bound(kept, slot.step, {}, &std::pair<std::uint64_t, std::string>::first);
    if (place == kept.end() || place->first != slot.step) kept.emplace(place, slot.step, slot.attempt);
  }
  return kept;
}

void AgentRank::retire() {
  const std::lock_guard lock(mutex_);
  trainer_ = 0;
}

void AgentRank::persist(const PersistRequest& request) {
  {
    const std::lock_guard lock(mutex_);
    work_.emplace_back(request);
  }
  changed_.notify_all();
}

bool AgentRank::is_settled() const {
  const std::lock_guard lock(mutex_);
  return work_.empty() && !encoding_ && publication_ == nullptr && !is_committing_;
}

std::size_t AgentRank::slot_count() const {
  const std::lock_guard lock(mutex_);
  return slots_.size();
}

std::uint64_t AgentRank::staged_count() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

AgentRank::Reached AgentRank::reached(std::uint64_t saves) const {
  const std::lock_guard lock(mutex_);
  const auto is_waiting = [saves](const Work& work) {
    const auto* const queued = std::get_if<QueuedSave>(&work);
    return queued != nullptr && queued->number <= saves;
  };
  if ((encoding_ && *encoding_ <= saves) || std::ranges::any_of(work_, is_waiting)) return Reached::staged;
  const bool is_writing = publication_ != nullptr && publication_->queued.number <= saves;
  return is_writing || is_committing_ ? Reached::encoded : Reached::settled;
}

bool AgentRank::is_newest(std::uint64_t step) const {
  const auto newest = cache_->newest();
  const std::lock_guard lock(mutex_);
  const auto is_later = [step](const Slot& slot) { return slot.state == SlotState::held && slot.step > step; };
  return (!newest || newest->step <= step) && std::ranges::none_of(slots_, is_later);
}

bool AgentRank::is_storing(std::uint64_t step) const {
  const std::lock_guard lock(mutex_);
  const auto is_its = [step](const Work& work) {
    const auto* const queued = std::get_if<QueuedSave>(&work);
    return queued != nullptr && queued->staged.persist && queued->staged.step == step;
  };
  return std::ranges::any_of(work_, is_its) || (publication_ != nullptr && publication_->queued.staged.step == step) ||
         std::ranges::find(uncommitted_, step, &Uncommitted::step) != uncommitted_.end();
}

bool AgentRank::is_idle(bool ignore_uncommitted) const {
  const std::lock_guard lock(mutex_);
  const bool has_work = !work_.empty() || encoding_ || publication_ != nullptr || !removed_.empty();
  return !has_work && (ignore_uncommitted || uncommitted_.empty());
}

void AgentRank::abandon() {
  std::deque<Work> dropped;
  {
    const std::lock_guard lock(mutex_);
    dropped.swap(work_);
  }
  for (Work& work : dropped) {
    const Error error(ErrorKind::cancelled, "the agent was stopped before it began this work");
    if (auto* const queued = std::get_if<QueuedSave>(&work)) fail_save(*queued, error);
    if (auto* const fetch = std::get_if<QueuedFetch>(&work)) fetch->done(tl::unexpected(error));
    if (auto* const kept = std::get_if<PersistRequest>(&work)) {
      const std::lock_guard lock(mutex_);
      fail_save_locked(kept_ticket(kept->step), kept->step, error);
    }
  }
}

RankReport AgentRank::report() const {
  const std::uint64_t memory_bytes = cache_->bytes();
  const auto kept = memory_attempts();
  const std::lock_guard lock(mutex_);
  RankReport report = totals_;
  report.arena_bytes = arena_ ? arena_->memory.size_bytes() : 0;
  report.slots = static_cast<std::uint32_t>(slots_.size());
  report.budget_bytes = budget_bytes_;
  report.memory_bytes = memory_bytes;
  for (const auto& [step, attempt] : kept) report.memory_steps.push_back(step);
  report.queued = work_.size();
  report.is_encoding = encoding_.has_value();
  report.is_writing = publication_ != nullptr && publication_->is_encoded;
  report.uncommitted = uncommitted_.size();
  return report;
}

void AgentRank::run_encoder() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_ending_ || !work_.empty(); });
    if (is_ending_) break;
    Work work = std::move(work_.front());
    work_.pop_front();
    const auto* const save = std::get_if<QueuedSave>(&work);
    encoding_ = save != nullptr ? save->number : UINT64_MAX;
    lock.unlock();
    if (save != nullptr) {
      encode(*save);
      os::return_free_memory();
    }
    if (const auto* const kept = std::get_if<PersistRequest>(&work)) {
      persist_kept(*kept);
      os::return_free_memory();
    }
    if (const auto* const fetch = std::get_if<QueuedFetch>(&work)) {
      fetch->done(no_throw("fetch", [&] { return gather_step(fetch->request); }));
    }
    lock.lock();
    encoding_.reset();
    lock.unlock();
    sink_.wake();
  }
  abandon();
}

void AgentRank::run_writer() {
  auto wait = kFirstCommitWait;
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto is_due = [&] {
      return publication_ != nullptr ? publication_->is_encoded : is_ending_ || !removed_.empty();
    };
    if (uncommitted_.empty()) {
      changed_.wait(lock, is_due);
    } else {
      changed_.wait_for(lock, wait, is_due);
    }
    if (is_due()) {
      if (publication_ == nullptr && is_ending_) return;
      if (publication_ != nullptr) {
        lock.unlock();
        publish(*publication_);
        lock.lock();
        publication_.reset();
      }
      wait = kFirstCommitWait;
    } else {
      // The encoder thread is using the store.
      if (publication_ != nullptr) continue;
      wait = std::min(2 * wait, kLongestCommitWait);
    }
    is_committing_ = !uncommitted_.empty() || !removed_.empty();
    lock.unlock();
    changed_.notify_all();
    if (is_committing_) {
      if (!uncommitted_.empty()) commit_complete_attempts();
      remove_rotated();
      const std::lock_guard end(mutex_);
      is_committing_ = false;
    }
    changed_.notify_all();
    sink_.wake();
    lock.lock();
  }
}

void AgentRank::rotate(const Rotation& rotation) {
  {
    const std::lock_guard lock(mutex_);
    const Retention retention{.keep_last = rotation.keep_last};
    must_reopen_ |= !is_rotated_ || !(settings_.retention == retention);
    settings_.retention = retention;
    is_rotated_ = true;
    removed_.insert(rotation.removed.begin(), rotation.removed.end());
  }
  changed_.notify_all();
}

void AgentRank::free_slot(std::uint32_t slot) {
  const std::lock_guard lock(mutex_);
  free_slot_locked(slot);
}

void AgentRank::empty_slot_locked(std::uint32_t slot) {
  if (slots_[slot].chunks != nullptr) slots_[slot].chunks->release();
  if (slots_[slot].frame != nullptr) cache_->set_restorable(std::nullopt);
  slots_[slot] = {};
}

void AgentRank::free_slot_locked(std::uint32_t slot) {
  if (slot >= slots_.size()) return;
  empty_slot_locked(slot);
  ProgressEvent event;
  event.free = slot;
  tell(std::move(event));
}

void AgentRank::tell(ProgressEvent event) { sink_.tell(rank_, trainer_, std::move(event)); }

void AgentRank::set_last_error(const Error& error) {
  const std::lock_guard lock(mutex_);
  totals_.last_error = error.message();
}

void AgentRank::fail_save(const QueuedSave& queued, Error error) {
  const std::lock_guard lock(mutex_);
  if (!queued.attempt.empty()) job_.attempts.note_failed(queued.staged.step, rank_, queued.attempt);
  fail_save_locked(queued.staged.ticket, queued.staged.step, std::move(error), false, queued.staged.persist);
}

void AgentRank::note_ended_locked(std::uint64_t step, std::string_view stage, const Error* error) {
  EndedSave ended{.step = step, .stage = std::string(stage), .kind = {}, .code = {}, .message = {}};
  if (error != nullptr) {
    ended.kind = error_kind_name(error->kind());
    ended.code = error_code_name(*error);
    ended.message = error->message();
  }
  if (totals_.ended.size() >= kMaxEnded) totals_.ended.erase(totals_.ended.begin());
  totals_.ended.push_back(std::move(ended));
}

void AgentRank::fail_save_locked(std::uint64_t ticket, std::uint64_t step, Error error, bool is_skip,
                                 bool is_for_store) {
  if (is_for_store) note_ended_locked(step, is_skip ? "skipped" : "failed", &error);
  if (is_skip) {
    ++totals_.skipped;
  } else {
    ++totals_.failed;
    totals_.last_error = error.message();
  }
  ProgressEvent event;
  event.ticket = ticket;
  event.skipped = is_skip;
  event.stage = Stage::failed;
  event.error = std::move(error);
  tell(std::move(event));
}

}  // namespace bitsnap::engine
