// This process: its identity, its program and how much it asks of the machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>

namespace bitsnap::os {

// Differs between a process and the child that it forked.
[[nodiscard]] std::int64_t process_id() noexcept;

// Whose rights this process has.
[[nodiscard]] std::uint32_t user_id() noexcept;

// The path of the file that this process runs; not_found if that was removed or replaced since.
[[nodiscard]] Result<std::string> own_executable();

// Lets others go first, for CPUs and for disks: by so many steps of niceness, also of the session where that is this
// process's own, as a batch, at the lowest priority of those that still get their turn. Holds for the calling thread and the threads that it starts from then on. Gives what
// the system refused, which is no reason not to go on.
[[nodiscard]] std::vector<Error> lower_priority(int nice_increment);

}  // namespace bitsnap::os
