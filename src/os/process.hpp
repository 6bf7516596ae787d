// This process: its number, user, program, priority and threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>

namespace bitsnap::os {

// Differs between a process and the child that it forked.
[[nodiscard]] std::int64_t process_id() noexcept;

// What tells a process from all others of all machines, as far as the system says it: "BOOT NAMESPACE START", the
// random number of the machine's start, the namespace of process numbers and the time of the process's start. Processes
// with the same BOOT and NAMESPACE see each other's numbers. Empty if there is no such process, or the system does not
// tell.
[[nodiscard]] std::string process_identity(std::int64_t process);

// The name of this machine, for people.
[[nodiscard]] std::string machine_name();

// The effective user.
[[nodiscard]] std::uint32_t user_id() noexcept;

// From now on, new files and directories get the permissions that they would get from another process of this user: its
// umask applies. Changes nothing if /proc does not tell it.
void use_umask_of(std::int64_t process);

// Lowers the priority for CPUs and disks: adds `nice_increment` to the niceness, and selects the batch scheduler and
// the lowest best-effort I/O priority. Applies to the calling thread and the threads that it starts later, for good:
// only a privileged thread may undo it. Returns what the system refused, which callers may ignore.
[[nodiscard]] std::vector<Error> lower_priority(int nice_increment);

// The same for disks only.
[[nodiscard]] Result<void> lower_io_priority();

// When the machine or a control group runs out of memory, the system ends this process before all that did not call
// this. Returns what the system refused, which callers may ignore.
[[nodiscard]] Result<void> offer_to_end_first();

// If Linux groups processes by session (autogroup), niceness counts only within the group, and the group has its own:
// this one, 0 to 19, which may also be lowered again. Does nothing in a session of another process.
[[nodiscard]] Result<void> set_session_niceness(int nice);

// The number of CPUs that this process may use: of its affinity mask, or the CPU quota of its control group (rounded
// up), or the number in the environment variable BITSNAP_THREADS, if that is less. At least 1. Quota and variable are
// those of the first call.
[[nodiscard]] unsigned usable_threads();

}  // namespace bitsnap::os
