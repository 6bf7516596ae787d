// This process: its number, user, program and priority.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>

namespace bitsnap::os {

// Differs between a process and the child that it forked.
[[nodiscard]] std::int64_t process_id() noexcept;

// The effective user.
[[nodiscard]] std::uint32_t user_id() noexcept;

// Lowers the priority for CPUs and disks: adds `nice_increment` to the niceness (and to that of the session, if it is
// this process's own), and selects the batch scheduler and the lowest best-effort I/O priority. Applies to the calling
// thread and the threads that it starts later. Returns what the system refused, which callers may ignore.
[[nodiscard]] std::vector<Error> lower_priority(int nice_increment);

// When the machine or a control group runs out of memory, the system ends this process before all that did not call
// this. Returns what the system refused, which callers may ignore.
[[nodiscard]] Result<void> offer_to_end_first();

}  // namespace bitsnap::os
