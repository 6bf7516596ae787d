// The signals that ask a process to end, as something to read. For the main program of a process that nobody else
// governs.
#pragma once

#include <cstdint>

#include <bitsnap/error.hpp>

#include "os/poll_set.hpp"

namespace bitsnap::os {

// While it lives, SIGTERM and SIGINT do nothing but to make its descriptor readable, whichever thread gets them; after
// it they do what they did before. A forked child dies of them as if there were no handlers.
class SignalWatch {
 public:
  // busy if there is one: the signals are the whole process's.
  [[nodiscard]] static Result<SignalWatch> start();

  SignalWatch(SignalWatch&& other) noexcept;
  SignalWatch& operator=(SignalWatch&&) = delete;
  ~SignalWatch();

  // Readable from the first signal on.
  [[nodiscard]] int descriptor() const noexcept;
  // How many signals have come.
  [[nodiscard]] unsigned count() const noexcept;

 private:
  SignalWatch() noexcept = default;

  bool is_active_ = true;
};

}  // namespace bitsnap::os
