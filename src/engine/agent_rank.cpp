// What the agent asks of a rank, and the loops of its two threads.
#include "engine/agent_rank.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "os/memory.hpp"

namespace bitsnap::engine {
namespace {

// What the agent leaves free of the system's memory when it keeps snapshots: a training needs more at some times.
constexpr std::uint64_t kFreeBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kFreeShare = 16;  // and this part of a state

}  // namespace

AgentRank::AgentRank(Job& job, const Hello& hello, ProgressSink& sink)
    : job_(job),
      sink_(sink),
      rank_(hello.rank),
      executor_(exec::make_executor(job.threads)),
      store_(job, hello.rank, hello.settings, cache_) {
  writer_ = std::thread([this] { run_writer(); });
  encoder_ = std::thread([this] { run_encoder(); });
}

AgentRank::~AgentRank() {
  queue_.end();
  encoder_.join();
  writer_.join();
}

AgentRank::ArenaView AgentRank::renew(const Hello& hello) {
  const std::lock_guard lock(mutex_);
  store_.set_settings(hello.settings);
  budget_.bytes = hello.budget_bytes;
  budget_.snapshots = std::max(1U, hello.memory_snapshots);
  cache_->set_limits(memory_limits());
  totals_.begin_trainer();
  ArenaView view;
  view.trainer = ++trainer_;
  const Arena* const arena = slots_.arena().get();
  auto descriptor = arena != nullptr ? arena->memory.duplicate() : Result<os::Descriptor>(os::Descriptor());
  if (arena == nullptr || !descriptor) return view;
  view.descriptor = std::move(*descriptor);
  view.slot_bytes = arena->slot_bytes;
  view.slots = slots_.view();
  return view;
}

store::BaseCache::Limits AgentRank::memory_limits() const {
  const Arena* const arena = slots_.arena().get();
  const std::uint64_t raw = arena != nullptr ? arena->slot_bytes : 0;
  const std::uint64_t used = (arena != nullptr ? arena->memory.size_bytes() : 0) + kTensorBytes * budget_.tensors;
  const std::uint64_t bytes = budget_.bytes == 0 ? raw : budget_.bytes - std::min(budget_.bytes, used);
  return {.snapshots = budget_.snapshots, .bytes = bytes, .free_bytes = kFreeBytes + raw / kFreeShare};
}

Result<void> AgentRank::set_arena(os::SharedMemory memory, const ArenaOffer& offer) {
  const std::lock_guard lock(mutex_);
  BITSNAP_TRY(slots_.replace(std::move(memory), offer));
  cache_->set_limits(memory_limits());
  return {};
}

Result<void> AgentRank::stage(const Staged& staged) {
  const std::lock_guard lock(mutex_);
  if (const std::size_t queued = queue_.counts().queued; queued >= SaveQueue::kMaxWork) {
    return fail(
        ErrorKind::invalid_argument,
        fmt::format("cannot stage a state with {} requests queued; the limit is {}", queued, SaveQueue::kMaxWork));
  }
  BITSNAP_TRY(slots_.stage(staged));
  // join() must be called once per accepted save, in order, so it comes after the checks.
  std::string attempt;
  if (job_.world_size > 1) attempt = job_.attempts.join(staged.step, rank_);
  totals_.begin_save(staged.step);
  queue_.push(QueuedSave{staged, std::move(attempt), slots_.arena(), job_.attempts.now()});
  return {};
}

void AgentRank::rotate(const Rotation& rotation) {
  store_.set_rotation(rotation.keep_last);
  queue_.push_removed(rotation.removed);
}

std::optional<std::size_t> AgentRank::free_slots() const {
  const std::lock_guard lock(mutex_);
  if (slots_.arena() == nullptr) return std::nullopt;
  return slots_.free_count();
}

std::vector<std::pair<std::uint64_t, std::string>> AgentRank::memory_attempts() const {
  auto kept = cache_->attempts();
  // A snapshot may be in the cache without its bases, if only an earlier agent had them.
  std::erase_if(kept, [this](const auto& each) { return !cache_->chain(each.first); });
  const std::lock_guard lock(mutex_);
  if (const auto slot = slots_.restorable()) {
    const SlotState& state = slots_.state(*slot);
    const auto place = std::ranges::lower_bound(kept, state.step, {}, &std::pair<std::uint64_t, std::string>::first);
    if (place == kept.end() || place->first != state.step) kept.emplace(place, state.step, state.attempt);
  }
  return kept;
}

bool AgentRank::is_newest(std::uint64_t step) const {
  const auto newest = cache_->newest();
  const std::lock_guard lock(mutex_);
  const auto held = slots_.held();
  return (!newest || newest->step <= step) && (!held || slots_.state(*held).step <= step);
}

void AgentRank::retire() {
  const std::lock_guard lock(mutex_);
  trainer_ = 0;
}

void AgentRank::abandon() {
  for (SaveQueue::Work& work : queue_.drop()) {
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
  RankReport report{totals_.get(), queue_.counts()};
  report.memory_bytes = cache_->bytes();
  for (const auto& [step, attempt] : memory_attempts()) report.memory_steps.push_back(step);
  const std::lock_guard lock(mutex_);
  if (slots_.arena() != nullptr) report.arena_bytes = slots_.arena()->memory.size_bytes();
  report.slots = static_cast<std::uint32_t>(slots_.size());
  report.budget_bytes = budget_.bytes;
  return report;
}

void AgentRank::run_encoder() {
  while (std::optional<SaveQueue::Work> work = queue_.take()) {
    if (const auto* const fetch = std::get_if<QueuedFetch>(&*work)) {
      fetch->done(no_throw("fetch", [&] { return gather_step(fetch->request); }));
    } else {
      if (const auto* const save = std::get_if<QueuedSave>(&*work)) encode(*save);
      if (const auto* const kept = std::get_if<PersistRequest>(&*work)) persist_kept(*kept);
      os::return_free_memory();
    }
    queue_.end_work();
    sink_.wake();
  }
  abandon();
}

void AgentRank::run_writer() {
  while (const std::optional<Publication*> publication = queue_.await_writing()) {
    if (*publication != nullptr) publish(**publication);
    if (queue_.begin_committing()) {
      commit_complete_attempts();
      remove_rotated();
      queue_.end_committing();
    }
    sink_.wake();
  }
}

void AgentRank::free_slot(std::uint32_t slot) {
  const std::lock_guard lock(mutex_);
  free_slot_locked(slot);
}

void AgentRank::free_slot_locked(std::uint32_t slot) {
  slots_.free(slot);
  ProgressEvent event;
  event.free = slot;
  tell(std::move(event));
}

void AgentRank::fail_save(const QueuedSave& queued, Error error) {
  const std::lock_guard lock(mutex_);
  if (!queued.attempt.empty()) job_.attempts.note_failed(queued.staged.step, rank_, queued.attempt);
  fail_save_locked(queued.staged.ticket, queued.staged.step, std::move(error), false, queued.staged.persist);
}

void AgentRank::fail_save_locked(std::uint64_t ticket, std::uint64_t step, Error error, bool is_skip,
                                 bool is_for_store) {
  ProgressEvent event;
  event.ticket = ticket;
  event.skipped = is_skip;
  event.stage = Stage::failed;
  event.error = std::move(error);
  totals_.add_failed(step, event, is_for_store);
  tell(std::move(event));
}

}  // namespace bitsnap::engine
