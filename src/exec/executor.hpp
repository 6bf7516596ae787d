// Runs many items on several threads, in parallel or as an ordered pipeline, with bounded memory and a deterministic
// result.
//
// Every executor with any number of threads guarantees:
// - Items start in order. The error of the first failing item, in item order, is returned for every schedule. Later
//   items may or may not have run.
// - run_ordered() commits the items before the first error, and no others. Commits run one at a time in item order,
//   each after its item's work, not always on the same thread. A commit sees what earlier commits wrote.
// - At most `slots` items are between the start of their work and the end of their commit (in run(): the end of their
//   work). Each has its own slot number below `slots`, so buffers indexed by slot need no lock and bound the memory.
// - An exception from a callable becomes an error of its item: resource_exhausted for std::bad_alloc, otherwise
//   internal.
// - A cancelled token stops further items and commits from starting. The result is cancelled, unless an earlier item
//   failed (then its error) or everything was done.
// - When a call returns, none of its callables is running or will run.
//
// Several threads may use one executor at once; on oneTBB they share its threads, so no call may wait for what
// another call does. A call from inside a work or commit runs inline on the calling thread and cannot deadlock. Calls
// with one thread or one item, and calls in a forked child (threads do not survive a fork), run inline, too; inline
// calls use slot 0 only. Threads start at the first call that needs them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <bitsnap/error.hpp>

#include "base/function_ref.hpp"

namespace bitsnap::exec {

// Cancels an operation of another thread. Copies share one flag; any thread may use any copy.
class CancelToken {
 public:
  CancelToken() : flag_(std::make_shared<std::atomic<bool>>(false)) {}

  // Permanent.
  void request_cancel() const noexcept { flag_->store(true, std::memory_order_release); }
  [[nodiscard]] bool is_cancelled() const noexcept { return flag_->load(std::memory_order_acquire); }

 private:
  std::shared_ptr<std::atomic<bool>> flag_;
};

class ItemRun;

// Processes one item. Must not keep a reference to data of the slot.
using ItemFunction = FunctionRef<Result<void>(std::size_t item, std::size_t slot)>;

class Executor {
 public:
  virtual ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // The largest number of threads that work at once, including the caller. At least 1.
  [[nodiscard]] unsigned threads() const noexcept { return threads_; }

  // The meaning of `slots` 0: twice the threads, so that threads rarely wait for a commit.
  [[nodiscard]] std::size_t default_slots() const noexcept { return std::size_t{2} * threads_; }

  // Works on the items in [0, items) in parallel and commits them in order.
  [[nodiscard]] Result<void> run_ordered(std::size_t items, std::size_t slots, ItemFunction work, ItemFunction commit,
                                         const CancelToken* cancel = nullptr);

  // Works on the items in [0, items) in parallel.
  [[nodiscard]] Result<void> run(std::size_t items, std::size_t slots, ItemFunction work,
                                 const CancelToken* cancel = nullptr);

 protected:
  explicit Executor(unsigned threads);

 private:
  // Whether the calling thread itself does what needs one thread only.
  [[nodiscard]] virtual bool runs_one_inline() const noexcept { return true; }
  Result<void> start(std::size_t items, std::size_t slots, ItemFunction work, const ItemFunction* commit,
                     const CancelToken* cancel);
  // Lets up to `team` threads, including the caller, participate in `run`; returns when it is finished.
  virtual void drive(ItemRun& run, unsigned team) = 0;

  const unsigned threads_;
  const std::int64_t process_id_;
};

// An executor never has more threads.
inline constexpr unsigned kMaxThreads = 1024;

// Uses oneTBB, or plain threads if built with BITSNAP_PLAIN_THREADS; a background executor after work_in_background().
// 0 threads: all usable CPUs.
[[nodiscard]] std::unique_ptr<Executor> make_executor(unsigned threads);

// Not with BITSNAP_PLAIN_THREADS.
[[nodiscard]] std::unique_ptr<Executor> make_tbb_executor(unsigned threads);

// Uses plain threads, started for each call. For ThreadSanitizer, which does not understand oneTBB.
[[nodiscard]] std::unique_ptr<Executor> make_plain_executor(unsigned threads);

// Executors of a process that works in the background: their threads have a lower priority than those that call them,
// except while the work is urgent. A thread that has lowered its priority may not raise it again without privileges, so
// other threads take over. The state belongs to the process; any thread may call.

// From now on, make_executor() makes background executors. Their threads add `nice_increment` to their niceness.
void work_in_background(int nice_increment) noexcept;
[[nodiscard]] bool is_in_background() noexcept;

// While the work is urgent, threads with the priority of the caller do it; the others first finish their items.
void set_urgent(bool is_urgent) noexcept;
[[nodiscard]] bool is_urgent() noexcept;

// Uses plain threads, started for each call; the calling thread only waits unless the work is urgent.
[[nodiscard]] std::unique_ptr<Executor> make_background_executor(unsigned threads);

}  // namespace bitsnap::exec
