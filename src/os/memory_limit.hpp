// How much memory this process may still allocate, and what limits it. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include <bitsnap/error.hpp>

#include "os/cgroup.hpp"

namespace bitsnap::os {

struct AvailableMemory {
  std::uint64_t available_bytes = 0;
  std::string limit;  // the tightest limit, for messages: "memory.max of /sys/fs/cgroup/job is 1048576 bytes"
};

// The minimum of what the machine has without swapping and of what remains in this process's control groups and those
// above them: limit minus use, without file pages that would be dropped first. A snapshot of the moment: other
// processes allocate, too. unsupported if the system does not report it.
[[nodiscard]] Result<AvailableMemory> available_memory();

// The same from the texts that `read` returns. Used by src/os only.
[[nodiscard]] Result<AvailableMemory> available_memory_by(TextReader read);

}  // namespace bitsnap::os
