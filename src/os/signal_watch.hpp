// Turns the signals that ask a process to end into a readable descriptor. For programs that own their whole process.
#pragma once

#include <cstdint>

#include <bitsnap/error.hpp>

#include "os/poll_set.hpp"

namespace bitsnap::os {

// While it exists, SIGTERM and SIGINT only make its descriptor readable, whichever thread receives them. Its destructor
// restores the previous handlers. In a forked child the signals end the process as by default.
class SignalWatch {
 public:
  // busy if the process has one already.
  [[nodiscard]] static Result<SignalWatch> start();

  SignalWatch(SignalWatch&& other) noexcept;
  SignalWatch& operator=(SignalWatch&&) = delete;
  ~SignalWatch();

  // Readable from the first signal on.
  [[nodiscard]] int descriptor() const noexcept;
  // The number of signals received.
  [[nodiscard]] unsigned count() const noexcept;

 private:
  SignalWatch() noexcept = default;

  bool is_active_ = true;
};

}  // namespace bitsnap::os
