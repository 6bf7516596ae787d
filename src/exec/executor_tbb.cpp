// The executor on oneTBB: an arena of its own, one task per recruit. Left out with BITSNAP_PLAIN_THREADS.
//
// No task ever blocks. The wait of a run is isolated, so that a thread that waits for its own run is not held up by an
// item of another; the context is isolated too, so that an application that cancels its own tasks does not lose ours.
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
    // oneTBB starts no more threads than the machine has CPUs unless it is told. The least of all such limits holds, so
    // one is set only where it raises the limit.
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
  tbb::task_arena arena_;  // takes its threads when it is first used
};

}  // namespace

std::unique_ptr<Executor> make_executor(unsigned threads) { return std::make_unique<TbbExecutor>(threads); }

}  // namespace bitsnap::exec
