// Watches another process, by a descriptor that means this process even after its number is reused. Thread-safe.
//
// Where the system refuses such descriptors (before Linux 5.3, and in some containers), the number is used: another
// process may have it after this one has ended, and nothing reports the end. Connections to the process still close,
// unless a child that it forked holds them.
#pragma once

#include <cstdint>

#include <bitsnap/error.hpp>

#include "os/clock.hpp"
#include "os/descriptor.hpp"

namespace bitsnap::os {

class LocalConnection;

class ProcessWatch {
 public:
  // not_found if there is no such process or it is a zombie.
  [[nodiscard]] static Result<ProcessWatch> open(std::int64_t process);

  // The process that made the other end of a connection. Before Linux 6.5 it is found by its number, which another
  // process may have by now if the first one has ended.
  [[nodiscard]] static Result<ProcessWatch> open_peer(const LocalConnection& connection);

  [[nodiscard]] std::int64_t process() const noexcept { return process_; }
  [[nodiscard]] bool is_alive() const noexcept;

  // Whether a signal or a debugger has stopped the process; false if the system does not tell.
  [[nodiscard]] bool is_stopped() const;

  // Whether the process ended before the time was over.
  [[nodiscard]] Result<bool> wait(std::int64_t timeout_ms) const;

  // Both fail with not_found if the process has ended.
  [[nodiscard]] Result<void> ask_to_end() const;  // SIGTERM
  [[nodiscard]] Result<void> kill() const;        // SIGKILL

  // Readable once the process has ended, whoever inherited its descriptors; -1 if there is none.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

 private:
  ProcessWatch(Descriptor descriptor, std::int64_t process) noexcept;
  [[nodiscard]] Result<void> send(int signal) const;

  Descriptor descriptor_;
  std::int64_t process_;
};

}  // namespace bitsnap::os
