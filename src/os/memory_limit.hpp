// How much memory this process may still ask for, and what sets the limit. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include <bitsnap/error.hpp>

#include "os/cgroup.hpp"

namespace bitsnap::os {

struct AvailableMemory {
  std::uint64_t available_bytes = 0;
  std::string limit;  // what leaves no more, for messages: "memory.max of /sys/fs/cgroup/job is 1048576 bytes"
};

// The least of what the machine has without swapping and what the control groups of this process, with all above them,
// leave: their limit less what they use, not counting the files that they would give up first. As of now: others ask
// for memory, too. unsupported where the system does not tell.
[[nodiscard]] Result<AvailableMemory> available_memory();

// The same by the texts that the reader gives. Of this floor only.
[[nodiscard]] Result<AvailableMemory> available_memory_by(TextReader read);

}  // namespace bitsnap::os
