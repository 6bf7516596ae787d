// An executor on oneTBB: its own arena, and one task per recruit. Not built with BITSNAP_PLAIN_THREADS.
//
// No task blocks. The wait of a run is isolated, so a waiting thread does not take items of other runs. The context
// is isolated, so an application that cancels its own tasks does not cancel these.
#include <optional>

#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include "exec/executor.hpp"
#include "exec/item_run.hpp"

namespace bitsnap::exec {
namespace {

class TbbTeam {
 public:
  explicit TbbTeam(ItemRun& run) : run_(run), context_(tbb::task_group_context::isolated), group_(context_) {}

  void lead() {
    const auto recruit = [this] { return this->recruit(); };
    run_.lead(recruit);
    group_.wait();
  }

 private:
  bool recruit() noexcept {
    try {
      group_.run([this] { run_.participate([this] { return recruit(); }); });
      return true;
    } catch (...) {  // no memory for a task
      return false;
    }
  }

  ItemRun& run_;
  tbb::task_group_context context_;
  tbb::task_group group_;
};

class TbbExecutor final : public Executor {
 public:
  explicit TbbExecutor(unsigned threads) : Executor(threads), arena_(static_cast<int>(this->threads())) {
    // Without a limit, oneTBB starts at most one thread per CPU. The lowest of all limits applies, so a limit is set
    // only if it raises the number.
    using Control = tbb::global_control;
    if (this->threads() > Control::active_value(Control::max_allowed_parallelism)) {
      more_threads_.emplace(Control::max_allowed_parallelism, this->threads());
    }
  }

 private:
  void drive(ItemRun& run, unsigned) override {
    arena_.execute([&run] { tbb::this_task_arena::isolate([&run] { TbbTeam(run).lead(); }); });
  }

  std::optional<tbb::global_control> more_threads_;
  tbb::task_arena arena_;  // gets its threads when it is first used
};

}  // namespace

std::unique_ptr<Executor> make_tbb_executor(unsigned threads) { return std::make_unique<TbbExecutor>(threads); }

}  // namespace bitsnap::exec
