// getrandom(); if a sandbox forbids it, a mix of values that differ between processes and calls.
#include "os/random.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <atomic>

#include "os/clock.hpp"

namespace bitsnap::os {

std::uint64_t random_u64() noexcept {
  std::uint64_t value = 0;
  if (::getrandom(&value, sizeof(value), GRND_NONBLOCK) == static_cast<ssize_t>(sizeof(value))) return value;
  static std::atomic<std::uint64_t> calls{0};
  value = monotonic_ns() + (static_cast<std::uint64_t>(::getpid()) << 40) + calls.fetch_add(1) * 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

}  // namespace bitsnap::os
