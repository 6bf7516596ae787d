// How much memory this process may still allocate, and what limits it. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <bitsnap/error.hpp>

#include "os/cgroup.hpp"

namespace bitsnap::os {

struct AvailableMemory {
  // What is useful, but not needed, leaves this part of the limit free: what a training needs varies from moment to
  // moment.
  static constexpr std::uint64_t kFreeShare = 8;

  std::uint64_t available_bytes = 0;
  std::uint64_t limit_bytes = 0;  // what the machine or the control group has in all
  std::string limit = {};  // the tightest limit, for messages: "memory.max of /sys/fs/cgroup/job is 1048576 bytes"

  [[nodiscard]] std::uint64_t free_bytes() const noexcept { return limit_bytes / kFreeShare; }
};

// The minimum of what the machine has without swapping and of what remains in this process's control groups and those
// above them: limit minus use, without file pages that the system would drop. A snapshot of the moment: other
// processes allocate, too. unsupported if the system does not report it.
[[nodiscard]] Result<AvailableMemory> available_memory();

// available_memory(), or a test's stand-in for it.
using MemoryProbe = std::function<Result<AvailableMemory>()>;

// The same for a caller that needs `bytes`: if there are fewer, returns free memory that the allocator of this process
// keeps to the system first.
[[nodiscard]] Result<AvailableMemory> available_memory_for(std::uint64_t bytes,
                                                           const MemoryProbe& probe = available_memory);

// The same from the texts that `read` returns. Used by src/os only.
[[nodiscard]] Result<AvailableMemory> available_memory_by(TextReader read);

}  // namespace bitsnap::os
