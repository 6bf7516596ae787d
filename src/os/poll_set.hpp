// Waits for several descriptors at once. EventSignal lets other threads and signal handlers end the wait.
#pragma once

#include <cstdint>
#include <vector>

#include <bitsnap/error.hpp>

#include "os/clock.hpp"
#include "os/descriptor.hpp"

namespace bitsnap::os {

struct PollEvent {
  std::uint64_t token = 0;
  bool readable = false;  // reading will not block; also at the end of a stream
  bool writable = false;
  bool closed = false;  // the other end is gone; data may be left to read
};

// A list of descriptors to poll. Their owners keep them, and call forget() before they close one. One thread only.
class PollSet {
 public:
  // Watches a descriptor for data to read or, with `for_writing`, for room to write. Its events carry `token`, which
  // the caller chooses. Replaces an earlier entry of the same descriptor.
  void watch(int descriptor, std::uint64_t token, bool for_writing = false);
  void forget(int descriptor) noexcept;

  // The events of all descriptors that have some, in the order of watch(); none when the time is over. Unhandled events
  // are returned again by the next call. invalid_argument if a descriptor was closed without forget().
  [[nodiscard]] Result<std::vector<PollEvent>> wait(std::int64_t timeout_ms) const;

 private:
  struct Watched {
    int descriptor;
    std::uint64_t token;
    bool for_writing;
  };
  std::vector<Watched> watched_;
};

// Any thread or signal handler may raise it; it stays raised until it is cleared. An eventfd, or a pipe where the
// system refuses eventfds.
class EventSignal {
 public:
  [[nodiscard]] static Result<EventSignal> create();

  // Does nothing in a forked child, where it would raise the parent's signal. Keeps errno.
  void raise() const noexcept;
  void clear() const noexcept;

  // Readable while it is raised.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

 private:
  EventSignal(Descriptor descriptor, Descriptor writer) noexcept;

  Descriptor descriptor_;
  Descriptor writer_;  // the other end of a pipe
  std::int64_t process_;
};

}  // namespace bitsnap::os
