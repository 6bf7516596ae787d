// One call from Python into the library: it runs without the GIL, ends on Ctrl-C, reports progress, and passes
// exceptions of callbacks to the caller.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include <nanobind/nanobind.h>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

#include "gil.hpp"
#include "python_error.hpp"

namespace bitsnap::python {

// The threads that a call may use: `requested`, but one in the child of a process whose library had started threads,
// because these do not exist in the child and may have held locks.
[[nodiscard]] unsigned usable_threads(unsigned requested) noexcept;

// Called in the child of a fork.
void note_fork() noexcept;

// Lives on the stack of the call; made and destroyed with the GIL held.
class RunContext {
 public:
  // `progress` is None or a function of (done bytes, total bytes); False cancels. `takes` names what no other call may
  // have at the same time, such as a store; empty: nothing.
  explicit RunContext(nanobind::object progress, std::string takes = {});
  RunContext(const RunContext&) = delete;
  RunContext& operator=(const RunContext&) = delete;
  ~RunContext() { innermost_ = outer_; }

  // The innermost call of this thread, or that whose callback runs on this thread; nullptr: none.
  [[nodiscard]] static RunContext* innermost() noexcept { return innermost_; }

  // Whether a signal handler or a callback of a call made this one, which takes the same: it would wait for itself.
  [[nodiscard]] bool waits_for_itself() const noexcept {
    for (const RunContext* each = outer_; each != nullptr; each = each->outer_) {
      if (!takes_.empty() && each->takes_ == takes_) return true;
    }
    return false;
  }

  // While it exists, this thread runs a callback of the call, whichever thread made that.
  class Callback {
   public:
    explicit Callback(RunContext& context) noexcept : before_(std::exchange(innermost_, &context)) {}
    Callback(const Callback&) = delete;
    Callback& operator=(const Callback&) = delete;
    ~Callback() { innermost_ = before_; }

   private:
    RunContext* const before_;
  };

  // For RunOptions and SaveOptions; must not outlive this.
  [[nodiscard]] Progress progress() {
    return [this](std::uint64_t done, std::uint64_t total) { return on_progress(done, total); };
  }

  // To work on as many threads as the call may use, with its progress; must not outlive this.
  [[nodiscard]] RunOptions run(unsigned threads) { return {usable_threads(threads), progress()}; }

  // False after a signal handler raised or the call was ended otherwise. Callers that wait check it regularly.
  [[nodiscard]] bool go_on() { return call_back(false, false, 0, 0); }

  // Keeps the first exception of a callback for call() to raise, and ends the operation soon. Needs the GIL.
  void keep(nanobind::python_error exception);

  // Runs work() -> Result<T> without the GIL; returns T or raises.
  template <typename Work>
  auto call(Work&& work) {
    using Returned = std::invoke_result_t<Work>;
    Returned result = [&] {
      const GilRelease release;
      return work();
    }();
    raise_kept();
    if (!result && result.error().kind() == ErrorKind::cancelled && waits_for_itself()) raise_busy_with_itself();
    return value_or_raise(std::move(result));
  }

 private:
  bool on_progress(std::uint64_t done, std::uint64_t total);
  bool call_back(bool is_end, bool report, std::uint64_t done, std::uint64_t total);
  void raise_kept();
  [[noreturn]] void raise_busy_with_itself() const;

  static thread_local RunContext* innermost_;
  RunContext* const outer_ = innermost_;
  const std::string takes_;

  const std::thread::id caller_ = std::this_thread::get_id();
  const nanobind::object progress_;
  const bool has_progress_;
  std::atomic<bool> stopped_ = false;
  std::atomic<std::int64_t> next_report_ = 0;  // in ticks of the steady clock
  std::atomic<std::int64_t> next_signal_check_ = 0;
  std::optional<nanobind::python_error> kept_;  // guarded by the GIL
};

// Calls work(milliseconds, is_first) -> Result<T>, which waits that long, at most `slice_ms`, until it is not busy or
// the time is over. Checks for signals between the calls. `takes`: as for RunContext.
template <typename Work>
auto call_in_slices(std::uint64_t timeout_ms, std::uint64_t slice_ms, Work&& work, std::string takes = {}) {
  RunContext context(nanobind::none(), std::move(takes));
  const auto start = std::chrono::steady_clock::now();
  return context.call([&] {
    for (bool is_first = true;; is_first = false) {
      const auto passed = std::chrono::steady_clock::now() - start;
      const auto passed_ms = static_cast<std::uint64_t>(passed / std::chrono::milliseconds(1));
      const std::uint64_t left_ms = timeout_ms - std::min(timeout_ms, passed_ms);
      auto result = work(std::min(left_ms, slice_ms), is_first);
      const bool is_over = result || result.error().kind() != ErrorKind::busy || left_ms <= slice_ms;
      if (is_over || !context.go_on()) return result;
    }
  });
}

}  // namespace bitsnap::python
