// One call of an executor: which item is started next, which committed, which slots are free, what failed.
//
// The threads that take part ask it for work until there is none; it never blocks and never starts a thread itself. A
// thread leaves when nothing can be started (all slots are taken), and another is asked for when that changes, so a
// slow commit or item ties up one thread and no more. Of this layer only. Thread-safe; lives on the stack of the call.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include "exec/executor.hpp"

namespace bitsnap::exec {

class ItemRun {
 public:
  // Asks for one more thread to call participate(); false if that cannot be. Called from several threads at once, never
  // under the lock of the run.
  using Recruit = FunctionRef<bool()>;

  // `commit` may be null: a run without order. Precondition: 1 <= team <= slots, team <= items.
  ItemRun(std::size_t items, std::size_t slots, unsigned team, ItemFunction work, const ItemFunction* commit,
          const CancelToken* cancel);
  ItemRun(const ItemRun&) = delete;
  ItemRun& operator=(const ItemRun&) = delete;

  // To be called once, by the thread that made the run, before anything else: recruits and takes part.
  void lead(Recruit recruit);

  // Takes part until nothing can be started. For each recruit that was granted, once.
  void participate(Recruit recruit);

  // Nobody takes part, none was recruited, and nothing can be started: what was run is run.
  [[nodiscard]] bool is_finished() const;

  // Precondition: is_finished().
  [[nodiscard]] Result<void> result();

  // The whole run on this thread, in order, on slot 0.
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

  mutable std::mutex mutex_;             // over all below
  unsigned team_ = 1;                    // who takes part, and who was recruited and has not come yet
  std::size_t next_start_ = 0;           // items below are started
  std::size_t next_commit_ = 0;          // items below are committed; in a run without order, how many are done
  std::size_t end_;                      // the first item that failed; nothing from it on is started or committed
  bool stopped_ = false;                 // cancelled
  std::vector<std::size_t> free_slots_;  // a stack: the slot that was used last is the warmest
  std::vector<std::size_t> ready_;  // slot of an item that waits for its commit to begin, or kNone; at item % slots
  std::optional<Error> error_;      // of the item end_
};

}  // namespace bitsnap::exec
