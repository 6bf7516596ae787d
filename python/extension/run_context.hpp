// One call from Python into the library that codes or does I/O: it runs without the GIL, answers Ctrl-C, reports
// progress, and brings Python exceptions of callbacks back to the caller.
#pragma once

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

// The threads that a call may use: as asked, but one in a process that was forked from one in which threads of the
// library had been started, because they are not there any more and their locks may be held for ever.
[[nodiscard]] unsigned usable_threads(unsigned requested) noexcept;

// To be called in the child of a fork.
void note_fork() noexcept;

// Lives on the stack of the call; made and destroyed with the GIL held.
class RunContext {
 public:
  // `progress` is None or is called with (done bytes, total bytes) now and then; False cancels.
  explicit RunContext(nanobind::object progress);

  // For RunOptions and SaveOptions; must not outlive this.
  [[nodiscard]] Progress progress() {
    return [this](std::uint64_t done, std::uint64_t total) { return on_progress(done, total); };
  }

  // False once a signal handler raised, or something else ended the call. For callers that wait, now and then.
  [[nodiscard]] bool go_on() { return on_progress(0, 1); }

  // Keeps the first exception that a callback raised, to be raised by call(), and makes the operation end soon.
  // Needs the GIL.
  void keep(nanobind::python_error exception);

  // Runs work() -> Result<T> without the GIL; gives back T, or raises.
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

}  // namespace bitsnap::python
