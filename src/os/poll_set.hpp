// Waiting for several descriptors at once, and a descriptor by which other threads and signal handlers end the wait.
#pragma once

#include <cstdint>
#include <vector>

#include <bitsnap/error.hpp>

#include "os/clock.hpp"
#include "os/descriptor.hpp"

namespace bitsnap::os {

struct PollEvent {
  std::uint64_t token = 0;
  bool readable = false;  // reading will not wait; true at the end of a stream, too
  bool writable = false;
  bool closed = false;  // the other end is gone; there may be something left to read
};

// A list, that the system knows nothing of: each descriptor stays its owner's, who takes it out before he closes it. To
// be used by one thread.
class PollSet {
 public:
  // Waits for something to read of it from now on, or for room to write where that is said. The token, which is the
  // caller's to choose, comes back with its events. Of a descriptor that is in the set already both are replaced.
  void watch(int descriptor, std::uint64_t token, bool for_writing = false);
  void forget(int descriptor) noexcept;

  // The events of those that have some, in the order in which they were put in; none when the time is over. What is not
  // taken care of is told again the next time. invalid_argument where a descriptor was closed and not taken out.
  [[nodiscard]] Result<std::vector<PollEvent>> wait(std::int64_t timeout_ms) const;

 private:
  struct Watched {
    int descriptor;
    std::uint64_t token;
    bool for_writing;
  };
  std::vector<Watched> watched_;
};

// Raised by any thread, and by handlers of signals; stays raised until it is cleared, however often it was raised.
class EventSignal {
 public:
  [[nodiscard]] static Result<EventSignal> create();

  // Does nothing in a forked child, which would raise it in its parent. Leaves errno as it was.
  void raise() const noexcept;
  void clear() const noexcept;

  // Readable while it is raised.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

 private:
  explicit EventSignal(Descriptor descriptor) noexcept;

  Descriptor descriptor_;
  std::int64_t process_;
};

}  // namespace bitsnap::os
