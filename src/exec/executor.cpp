// The part that all executors share: checking arguments, and calls that run inline.
#include "exec/executor.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <string>

#include "base/try.hpp"
#include "exec/item_run.hpp"
#include "os/process.hpp"

namespace bitsnap::exec {

Executor::Executor(unsigned threads)
    : threads_(std::min(threads == 0 ? os::usable_threads() : threads, kMaxThreads)), process_id_(os::process_id()) {}

Executor::~Executor() = default;

Result<void> Executor::run_ordered(std::size_t items, std::size_t slots, ItemFunction work, ItemFunction commit,
                                   const CancelToken* cancel) {
  return start(items, slots, work, &commit, cancel);
}

Result<void> Executor::run(std::size_t items, std::size_t slots, ItemFunction work, const CancelToken* cancel) {
  return start(items, slots, work, nullptr, cancel);
}

Result<void> Executor::start(std::size_t items, std::size_t slots, ItemFunction work, const ItemFunction* commit,
                             const CancelToken* cancel) {
  if (items == 0) return {};
  if (slots == 0) slots = default_slots();
  const auto team = static_cast<unsigned>(std::min({std::size_t{threads_}, slots, items}));
  if ((team == 1 && runs_one_inline()) || ItemRun::is_inside() || os::process_id() != process_id_) {
    return ItemRun::run_inline(items, work, commit, cancel);
  }
  try {
    ItemRun run(items, slots, team, work, commit, cancel);
    drive(run, team);
    return run.result();
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::resource_exhausted, "executor: out of memory for " + std::to_string(slots) + " slots");
  } catch (const std::exception& exception) {
    return fail(ErrorKind::internal, std::string("executor: ") + exception.what());
  }
}

std::unique_ptr<Executor> make_executor(unsigned threads) {
  if (is_in_background()) return make_background_executor(threads);
#if defined(BITSNAP_PLAIN_THREADS)
  return make_plain_executor(threads);
#else
  return make_tbb_executor(threads);
#endif
}

}  // namespace bitsnap::exec
