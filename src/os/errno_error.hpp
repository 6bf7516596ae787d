// Turns errno values into errors of bitsnap. Used by src/os only.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>

#include <bitsnap/error.hpp>

namespace bitsnap::os {

[[nodiscard]] ErrorKind errno_kind(int error) noexcept;
[[nodiscard]] ErrorCode errno_code(int error) noexcept;

// Makes a system call that returns -1 and sets errno if it fails. Repeats it while a signal interrupts it, as on some
// network file systems, and once if it meets a file that its server has replaced (ESTALE): the name leads to the new
// one.
template <typename Call>
int call_again(const Call& call) {
  for (bool was_stale = false;;) {
    const int result = call();
    if (result != -1 || (errno != EINTR && (errno != ESTALE || was_stale))) return result;
    was_stale = was_stale || errno == ESTALE;
  }
}

// Whether the system lacks a call, or a filter of system calls, as containers have, takes it away.
[[nodiscard]] bool is_refused_call(int error) noexcept;

// "create /a/b: no space left on device"
[[nodiscard]] Error errno_error(int error, std::string_view operation, std::string_view path);

[[nodiscard]] tl::unexpected<Error> fail_errno(int error, std::string_view operation, std::string_view path);

// invalid_argument if the path is empty or contains a NUL, where the system would cut it short.
[[nodiscard]] Result<void> check_path(std::string_view operation, std::string_view path);

}  // namespace bitsnap::os
