// The life of another process, held by what stays that process's even when its number goes to another. Thread-safe.
#pragma once

#include <cstdint>

#include <bitsnap/error.hpp>

#include "os/clock.hpp"
#include "os/descriptor.hpp"

namespace bitsnap::os {

class LocalConnection;

class ProcessWatch {
 public:
  // not_found if there is no such process; one that has ended and that nobody asked about yet (a zombie) is none.
  // unsupported before Linux 5.3.
  [[nodiscard]] static Result<ProcessWatch> open(std::int64_t process);

  // Whoever made the other end of a connection. Before Linux 6.5 it is looked for by its number, which might be another
  // process's by now if it ended in the meantime.
  [[nodiscard]] static Result<ProcessWatch> open_peer(const LocalConnection& connection);

  [[nodiscard]] std::int64_t process() const noexcept { return process_; }
  [[nodiscard]] bool is_alive() const noexcept;

  // Whether it has ended before the time was over.
  [[nodiscard]] Result<bool> wait(std::int64_t timeout_ms) const;

  // not_found if it has ended.
  [[nodiscard]] Result<void> ask_to_end() const;  // SIGTERM
  [[nodiscard]] Result<void> kill() const;        // SIGKILL

  // Readable once it has ended, which no descriptor that it left to others can hide.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

 private:
  ProcessWatch(Descriptor descriptor, std::int64_t process) noexcept;
  [[nodiscard]] Result<void> send(int signal) const;

  Descriptor descriptor_;
  std::int64_t process_;
};

}  // namespace bitsnap::os
