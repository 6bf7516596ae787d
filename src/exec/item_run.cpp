// The rules of a run. Callables run without the lock; every decision is made under it.
//
// The first error is the same for every schedule: items start in order, and an item is skipped only after an earlier
// one failed. So the first failing item always starts, and the smallest failing number wins.
#include "exec/item_run.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "base/try.hpp"

namespace bitsnap::exec {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

thread_local bool inside_callable = false;

class InsideMark {
 public:
  InsideMark() noexcept : before_(std::exchange(inside_callable, true)) {}
  ~InsideMark() { inside_callable = before_; }
  InsideMark(const InsideMark&) = delete;
  InsideMark& operator=(const InsideMark&) = delete;

 private:
  bool before_;
};

// The error of the exception that is being handled. Does not throw: the last message needs no memory.
Error current_exception_error(std::size_t item) noexcept {
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return Error(ErrorKind::resource_exhausted, "item " + std::to_string(item) + ": out of memory");
    } catch (const std::exception& exception) {
      return Error(ErrorKind::internal, "item " + std::to_string(item) + ": exception: " + exception.what());
    } catch (...) {
      return Error(ErrorKind::internal, "item " + std::to_string(item) + ": unknown exception");
    }
  } catch (...) {
    return Error(ErrorKind::resource_exhausted, "out of memory");
  }
}

Result<void> call(ItemFunction function, std::size_t item, std::size_t slot) noexcept {
  const InsideMark mark;
  try {
    return function(item, slot);
  } catch (...) {
    return tl::unexpected<Error>(current_exception_error(item));
  }
}

tl::unexpected<Error> cancelled_error(std::size_t done, std::size_t items) {
  return fail(ErrorKind::cancelled,
              "cancelled after " + std::to_string(done) + " of " + std::to_string(items) + " items");
}

}  // namespace

ItemRun::ItemRun(std::size_t items, std::size_t slots, unsigned team, ItemFunction work, const ItemFunction* commit,
                 const CancelToken* cancel)
    : items_(items), max_team_(team), work_(work), commit_(commit), cancel_(cancel), end_(items) {
  slots = std::min(slots, items);
  free_slots_.reserve(slots);
  for (std::size_t slot = slots; slot > 0; --slot) free_slots_.push_back(slot - 1);
  if (commit_ != nullptr) ready_.assign(slots, kNone);
}

bool ItemRun::is_inside() noexcept { return inside_callable; }

bool ItemRun::is_cancelled() const noexcept { return cancel_ != nullptr && cancel_->is_cancelled(); }

bool ItemRun::can_start() const noexcept { return !stopped_ && next_start_ < end_ && !free_slots_.empty(); }

// Reserves places for as many more threads as have an item to start, except for `kept` items that the caller starts.
unsigned ItemRun::claim_recruits(std::size_t kept) noexcept {
  if (!can_start()) return 0;
  const std::size_t startable = std::min(end_ - next_start_, free_slots_.size());
  if (startable <= kept) return 0;
  const auto claimed = static_cast<unsigned>(std::min<std::size_t>(startable - kept, max_team_ - team_));
  team_ += claimed;
  return claimed;
}

void ItemRun::recruit_claimed(unsigned claimed, Recruit recruit) {
  for (; claimed > 0; --claimed) {
    if (recruit()) continue;
    // No thread came, so the present ones do the work.
    const Lock lock(mutex_);
    team_ -= claimed;
    return;
  }
}

void ItemRun::lead(Recruit recruit) {
  Lock lock(mutex_);
  const unsigned claimed = claim_recruits(1);
  lock.unlock();
  recruit_claimed(claimed, recruit);
  participate(recruit);
}

void ItemRun::hand_over(Recruit recruit) {
  Lock lock(mutex_);
  const unsigned claimed = claim_recruits(1);
  lock.unlock();
  recruit_claimed(claimed, recruit);
  recruit_claimed(1, recruit);
}

bool ItemRun::participate(Recruit recruit, FunctionRef<bool()> goes_on) {
  Lock lock(mutex_);
  for (;;) {
    if (!stopped_ && is_cancelled()) stopped_ = true;
    if (!can_start()) break;
    if (!goes_on()) return false;
    const std::size_t item = next_start_++;
    const std::size_t slot = free_slots_.back();
    free_slots_.pop_back();
    lock.unlock();
    Result<void> worked = call(work_, item, slot);
    lock.lock();
    finish_work(item, slot, std::move(worked), lock, recruit);
  }
  --team_;
  return true;
}

void ItemRun::fail_item(std::size_t item, Error error) {
  if (item >= end_) return;  // an earlier item failed, too
  end_ = item;
  error_ = std::move(error);
}

void ItemRun::finish_work(std::size_t item, std::size_t slot, Result<void> worked, Lock& lock, Recruit recruit) {
  const bool failed = !worked;
  if (failed) fail_item(item, std::move(worked).error());
  if (commit_ == nullptr || item >= end_) {
    if (commit_ == nullptr && !failed) ++next_commit_;
    free_slots_.push_back(slot);  // this thread takes the next item itself
    return;
  }
  ready_[item % ready_.size()] = slot;
  commit_ready(lock, recruit);
}

// Commits ready items. Only one thread at a time finds any: an item is removed from ready_ when its commit begins, and
// the next item becomes available when the commit has ended.
void ItemRun::commit_ready(Lock& lock, Recruit recruit) {
  for (;;) {
    if (!stopped_ && is_cancelled()) stopped_ = true;
    std::size_t& ready = ready_[next_commit_ % ready_.size()];
    if (stopped_ || next_commit_ >= end_ || ready == kNone) return;
    const std::size_t slot = std::exchange(ready, kNone);
    const std::size_t item = next_commit_;
    // This thread is busy, so other threads start the items for which the last commit made room.
    const unsigned claimed = claim_recruits(0);
    lock.unlock();
    recruit_claimed(claimed, recruit);
    Result<void> committed = call(*commit_, item, slot);
    lock.lock();
    free_slots_.push_back(slot);
    if (committed) {
      ++next_commit_;
    } else {
      fail_item(item, std::move(committed).error());
    }
  }
}

bool ItemRun::is_finished() const {
  const Lock lock(mutex_);
  return team_ == 0;
}

Result<void> ItemRun::result() {
  const Lock lock(mutex_);
  if (error_) return tl::unexpected<Error>(std::move(*error_));
  if (next_commit_ == items_) return {};
  if (stopped_) return cancelled_error(next_commit_, items_);
  return fail(ErrorKind::internal, "executor: " + std::to_string(next_commit_) + " of " + std::to_string(items_) +
                                       " items were done, and nobody works on the rest");
}

Result<void> ItemRun::run_inline(std::size_t items, ItemFunction work, const ItemFunction* commit,
                                 const CancelToken* cancel) {
  for (std::size_t item = 0; item < items; ++item) {
    if (cancel != nullptr && cancel->is_cancelled()) return cancelled_error(item, items);
    BITSNAP_TRY(call(work, item, 0));
    if (commit == nullptr) continue;
    if (cancel != nullptr && cancel->is_cancelled()) return cancelled_error(item, items);
    BITSNAP_TRY(call(*commit, item, 0));
  }
  return {};
}

}  // namespace bitsnap::exec
