// Turns errno values into errors of bitsnap. Used by src/os only.
#pragma once

#include <string>
#include <string_view>

#include <bitsnap/error.hpp>

namespace bitsnap::os {

[[nodiscard]] ErrorKind errno_kind(int error) noexcept;

// Whether the system lacks a call, or a filter of system calls, as containers have, takes it away.
[[nodiscard]] bool is_refused_call(int error) noexcept;

// "create /a/b: no space left on device"
[[nodiscard]] Error errno_error(int error, std::string_view operation, std::string_view path);

[[nodiscard]] tl::unexpected<Error> fail_errno(int error, std::string_view operation, std::string_view path);

// invalid_argument if the path is empty or contains a NUL, where the system would cut it short.
[[nodiscard]] Result<void> check_path(std::string_view operation, std::string_view path);

}  // namespace bitsnap::os
