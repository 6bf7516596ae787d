// Runs many items on several threads, in parallel or as an ordered pipeline, with bounded memory and one answer.
//
// Guarantees, the same for every kind of executor and number of threads:
//  - Items are started in their order. If any fail, the error of the first failing item in the order of items is
//    returned, whatever the schedule. Items after it may or may not have been worked on.
//  - In run_ordered() the items before the first error are committed, and none from it on. Commits run one at a time,
//  in
//    the order of items, each after its item's work, not always on the same thread; what one commit wrote, the next
//    sees.
//  - At most `slots` items at a time are between the start of their work and the end of their commit (in run(): the end
//    of their work). Each holds a slot number below `slots` that nothing else holds at that time: buffers kept by slot
//    need no lock and bound the memory.
//  - An exception from a callable becomes an error of its item: std::bad_alloc resource_exhausted, all others internal.
//  - A cancelled token stops the start of items and of commits. The result is cancelled, unless an item failed before
//    (then it is that error) or everything was done.
//  - When a call returns, no callable of it is running and none will.
//
// One executor may be used by several threads at once; on oneTBB they share its threads, so no call may wait for what
// another is to do. A call from inside a work or commit, of this executor or another, runs inline on the calling
// thread: it cannot deadlock. With one thread, with one item, and in a process that was forked from the one that made
// the executor (threads do not survive a fork), a call runs inline too; inline calls start no thread and use slot 0
// only. Threads start at the first call that needs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <bitsnap/error.hpp>

#include "base/function_ref.hpp"
#include "exec/cancel_token.hpp"

namespace bitsnap::exec {

class ItemRun;

// Does one thing to an item; must not keep a reference to what belongs to the slot.
using ItemFunction = FunctionRef<Result<void>(std::size_t item, std::size_t slot)>;

class Executor {
 public:
  virtual ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // The most threads that work at once, the caller's included. At least 1.
  [[nodiscard]] unsigned threads() const noexcept { return threads_; }

  // The number of slots that 0 stands for: twice the threads, so that threads seldom wait for a commit.
  [[nodiscard]] std::size_t default_slots() const noexcept { return std::size_t{2} * threads_; }

  // For every item in [0, items): work in parallel, then commit in order.
  [[nodiscard]] Result<void> run_ordered(std::size_t items, std::size_t slots, ItemFunction work, ItemFunction commit,
                                         const CancelToken* cancel = nullptr);

  // For every item in [0, items): work in parallel.
  [[nodiscard]] Result<void> run(std::size_t items, std::size_t slots, ItemFunction work,
                                 const CancelToken* cancel = nullptr);

 protected:
  explicit Executor(unsigned threads);

 private:
  Result<void> start(std::size_t items, std::size_t slots, ItemFunction work, const ItemFunction* commit,
                     const CancelToken* cancel);
  // Lets up to `team` threads take part in `run`, the caller among them; returns when it is finished.
  virtual void drive(ItemRun& run, unsigned team) = 0;

  const unsigned threads_;
  const std::int64_t process_id_;
};

// More threads than this are never started.
inline constexpr unsigned kMaxThreads = 1024;

// On oneTBB, or on plain threads where the build chose them (BITSNAP_PLAIN_THREADS). 0 threads: as many as are usable.
[[nodiscard]] std::unique_ptr<Executor> make_executor(unsigned threads);

// On plain threads, started for each call: for checking with ThreadSanitizer, which cannot see into oneTBB.
[[nodiscard]] std::unique_ptr<Executor> make_plain_executor(unsigned threads);

}  // namespace bitsnap::exec
