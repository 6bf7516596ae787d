// What every parallel operation on a snapshot needs: an executor, working memory for each slot, progress and
// cancellation.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/snapshot.hpp>

#include "exec/executor.hpp"
#include "restore/read_context.hpp"

namespace bitsnap::restore {

class RunControl {
 public:
  // The cache of each slot is `cache_shares` times that of a usual read.
  RunControl(const RunOptions& options, const DecodeLimits& limits, std::uint64_t total_bytes,
             std::size_t cache_shares = 1)
      : executor_(exec::make_executor(options.threads)),
        slots_(executor_->default_slots()),
        limits_(limits),
        budget_(limits),
        progress_(options.progress),
        total_bytes_(total_bytes),
        remembered_bytes_(cache_shares * ReadContext::remembered_bytes_of(cache_shares * slots_)),
        contexts_(slots_) {
    add(0);
  }

  [[nodiscard]] exec::Executor& executor() noexcept { return *executor_; }
  [[nodiscard]] std::size_t slots() const noexcept { return slots_; }
  [[nodiscard]] const exec::CancelToken& cancel() const noexcept { return cancel_; }
  // Called before each chunk of an item that has several.
  [[nodiscard]] Result<void> check_cancelled() const {
    if (cancel_.is_cancelled()) return fail(ErrorKind::cancelled, "cancelled by the caller");
    return {};
  }

  // The slot's working memory, free and with its whole budget; cached chunks stay. For the thread that holds the slot.
  [[nodiscard]] ReadContext& context(std::size_t slot) {
    if (!contexts_[slot]) contexts_[slot] = std::make_unique<ReadContext>(limits_, remembered_bytes_, &budget_);
    contexts_[slot]->scratch().reset();
    contexts_[slot]->restart();
    return *contexts_[slot];
  }

  // Adds finished bytes. Thread-safe; calls of the user's function do not overlap.
  void add(std::uint64_t bytes) {
    if (!progress_) return;
    const std::lock_guard lock(mutex_);
    done_bytes_ += bytes;
    if (!cancel_.is_cancelled() && !progress_(done_bytes_, total_bytes_)) cancel_.request_cancel();
  }

 private:
  std::unique_ptr<exec::Executor> executor_;
  std::size_t slots_;
  const DecodeLimits& limits_;
  WorkBudget budget_;  // of the whole operation
  const Progress& progress_;
  std::uint64_t total_bytes_;
  std::uint64_t remembered_bytes_;
  std::uint64_t done_bytes_ = 0;
  std::mutex mutex_;
  exec::CancelToken cancel_;
  std::vector<std::unique_ptr<ReadContext>> contexts_;
};

}  // namespace bitsnap::restore
