// The state of one executor call: the next items to start and to commit, free slots, and the first error.
//
// Participating threads ask it for work until there is none. It never blocks and never starts a thread. A thread
// leaves if nothing can be started because all slots are in use; when that changes, another thread is recruited. So a
// slow item or commit occupies one thread only. Used in this layer only. Thread-safe; lives on the stack of the call.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include "exec/executor.hpp"

namespace bitsnap::exec {

class ItemRun {
 public:
  // Asks for one more thread to call participate(); returns false if there is none. Called from several threads at
  // once, never with the run's lock held.
  using Recruit = FunctionRef<bool()>;

  // `commit` may be null: an unordered run. Precondition: 1 <= team <= slots, team <= items.
  ItemRun(std::size_t items, std::size_t slots, unsigned team, ItemFunction work, const ItemFunction* commit,
          const CancelToken* cancel);
  ItemRun(const ItemRun&) = delete;
  ItemRun& operator=(const ItemRun&) = delete;

  // Recruits and participates. The thread that created the run calls this once, first.
  void lead(Recruit recruit);

  // Recruits, also for the place of the thread that created the run, which calls this once, first, instead of lead().
  void hand_over(Recruit recruit);

  // Participates until nothing can be started. Called once for each granted recruit. False: it has stopped before,
  // because `goes_on` was false, and its place is free for another thread, which calls this in its stead.
  bool participate(Recruit recruit, FunctionRef<bool()> goes_on = [] { return true; });

  // No thread participates or is recruited, and nothing can be started.
  [[nodiscard]] bool is_finished() const;

  // Precondition: is_finished().
  [[nodiscard]] Result<void> result();

  // Runs everything on this thread, in order, in slot 0.
  [[nodiscard]] static Result<void> run_inline(std::size_t items, ItemFunction work, const ItemFunction* commit,
                                               const CancelToken* cancel);

  // Whether the calling thread is inside a work or commit of any run.
  [[nodiscard]] static bool is_inside() noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;

  [[nodiscard]] bool is_cancelled() const noexcept;
  [[nodiscard]] bool can_start() const noexcept;
  [[nodiscard]] unsigned claim_recruits(std::size_t kept) noexcept;
  void recruit_claimed(unsigned claimed, Recruit recruit);
  void finish_work(std::size_t item, std::size_t slot, Result<void> worked, Lock& lock, Recruit recruit);
  void commit_ready(Lock& lock, Recruit recruit);
  void fail_item(std::size_t item, Error error);

  const std::size_t items_;
  const unsigned max_team_;
  const ItemFunction work_;
  const ItemFunction* const commit_;
  const CancelToken* const cancel_;

  mutable std::mutex mutex_;             // guards all members below
  unsigned team_ = 1;                    // participating threads, and recruited threads that have not arrived
  std::size_t next_start_ = 0;           // items below are started
  std::size_t next_commit_ = 0;          // items below are committed; in an unordered run, the number of items done
  std::size_t end_;                      // the first item that failed; nothing from it on is started or committed
  bool stopped_ = false;                 // cancelled
  std::vector<std::size_t> free_slots_;  // a stack: the last used slot has the warmest cache
  std::vector<std::size_t> ready_;       // slot of an item that is ready to be committed, or kNone; at item % slots
  std::optional<Error> error_;           // of the item end_
};

}  // namespace bitsnap::exec
