// Checks for signals and reports of progress have a minimum interval, across all threads.
#include "run_context.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

using Clock = std::chrono::steady_clock;

// Often enough for people, and rarely enough that taking the GIL costs nothing.
constexpr Clock::duration kSignalInterval = std::chrono::milliseconds(20);
constexpr Clock::duration kReportInterval = std::chrono::milliseconds(50);

std::atomic<bool> threads_were_used = false;
std::atomic<bool> threads_are_lost = false;

// True for one caller per interval.
bool is_due(std::atomic<std::int64_t>& next, Clock::duration interval) {
  const std::int64_t now = Clock::now().time_since_epoch().count();
  std::int64_t due = next.load(std::memory_order_relaxed);
  return now >= due && next.compare_exchange_strong(due, now + interval.count(), std::memory_order_relaxed);
}

}  // namespace

unsigned usable_threads(unsigned requested) noexcept {
  if (requested == 1 || threads_are_lost.load(std::memory_order_relaxed)) return 1;
  threads_were_used.store(true, std::memory_order_relaxed);
  return requested;
}

void note_fork() noexcept {
  if (threads_were_used.load(std::memory_order_relaxed)) threads_are_lost.store(true, std::memory_order_relaxed);
}

thread_local RunContext* RunContext::innermost_ = nullptr;

RunContext::RunContext(nb::object progress, std::string takes)
    : takes_(std::move(takes)), progress_(std::move(progress)), has_progress_(!progress_.is_none()) {
  // Checked before the work begins, not at the first call of the function.
  if (has_progress_ && PyCallable_Check(progress_.ptr()) == 0)
    throw nb::type_error("progress must be a function or None");
  innermost_ = this;
}

void RunContext::keep(nb::python_error exception) {
  if (!kept_) kept_.emplace(std::move(exception));
  stopped_.store(true, std::memory_order_relaxed);
}

void RunContext::raise_kept() {
  if (!kept_) return;
  nb::python_error exception = std::move(*kept_);
  kept_.reset();
  throw std::move(exception);
}

void RunContext::raise_busy_with_itself() const {
  raise(Error(ErrorKind::busy, takes_ +
                                   ": this very thread is using the store: a signal handler or a callback, such as "
                                   "progress=, cannot change it before the call that it interrupts has returned"));
}

bool RunContext::on_progress(std::uint64_t done, std::uint64_t total) {
  const bool is_end = done >= total;
  return call_back(is_end, has_progress_ && (is_end || is_due(next_report_, kReportInterval)), done, total);
}

bool RunContext::call_back(bool is_end, bool report, std::uint64_t done, std::uint64_t total) {
  if (stopped_.load(std::memory_order_relaxed)) return false;
  // Python runs signal handlers in its main thread, which also works and soon calls this.
  const bool check_signals =
      std::this_thread::get_id() == caller_ && (is_end || is_due(next_signal_check_, kSignalInterval));
  if (!check_signals && !report) return true;

  const GilAcquire gil;
  const Callback callback(*this);
  try {
    if (check_signals && PyErr_CheckSignals() != 0) throw nb::python_error();
    if (report && progress_(done, total).is(nb::handle(Py_False))) stopped_.store(true, std::memory_order_relaxed);
  } catch (nb::python_error& exception) {
    keep(std::move(exception));
  }
  return !stopped_.load(std::memory_order_relaxed);
}

}  // namespace bitsnap::python
