// One call from Python into the library: it runs without the GIL, ends on Ctrl-C, reports progress, and passes
// exceptions of callbacks to the caller.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>

#include <nanobind/nanobind.h>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

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
  // `progress` is None or a function of (done bytes, total bytes); False cancels.
  explicit RunContext(nanobind::object progress);

  // For RunOptions and SaveOptions; must not outlive this.
  [[nodiscard]] Progress progress() {
    return [this](std::uint64_t done, std::uint64_t total) { return on_progress(done, total); };
  }

  // False after a signal handler raised or the call was ended otherwise. Callers that wait check it regularly.
  [[nodiscard]] bool go_on() { return on_progress(0, 1); }

  // Keeps the first exception of a callback for call() to raise, and ends the operation soon. Needs the GIL.
  void keep(nanobind::python_error exception);

  // Runs work() -> Result<T> without the GIL; returns T or raises.
  template <typename Work>
  auto call(Work&& work) {
    using Returned = std::invoke_result_t<Work>;
    Returned result = [&] {
      const nanobind::gil_scoped_release release;
      return work();
    }();
    raise_kept();
    return value_or_raise(std::move(result));
  }

 private:
  bool on_progress(std::uint64_t done, std::uint64_t total);
  void raise_kept();

  const std::thread::id caller_ = std::this_thread::get_id();
  const nanobind::object progress_;
  const bool has_progress_;
  std::atomic<bool> stopped_ = false;
  std::atomic<std::int64_t> next_report_ = 0;  // in ticks of the steady clock
  std::atomic<std::int64_t> next_signal_check_ = 0;
  std::optional<nanobind::python_error> kept_;  // guarded by the GIL
};

// Calls work(milliseconds, is_first) -> Result<T>, which waits that long, at most `slice_ms`, until it is not busy or
// the time is over. Checks for signals between the calls.
template <typename Work>
auto call_in_slices(std::uint64_t timeout_ms, std::uint64_t slice_ms, Work&& work) {
  RunContext context{nanobind::none()};
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
