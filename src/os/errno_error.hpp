// What an errno of the system means in bitsnap's kinds of error. Of this floor only.
#pragma once

#include <string>
#include <string_view>

#include <bitsnap/error.hpp>

namespace bitsnap::os {

[[nodiscard]] ErrorKind errno_kind(int error) noexcept;

// "create /a/b: no space left on device"
[[nodiscard]] Error errno_error(int error, std::string_view operation, std::string_view path);

// invalid_argument for a path that the system would cut short or cannot take: empty, or with a NUL inside.
[[nodiscard]] Result<void> check_path(std::string_view operation, std::string_view path);

}  // namespace bitsnap::os
