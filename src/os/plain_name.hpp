// Names that a file or a store gives to files: each is checked here before it becomes a part of a path.
#pragma once

#include <string_view>

namespace bitsnap::os {

// Whether it is the name of an entry of a directory, and leads nowhere else: no "." or "..", no slash, no zero byte.
[[nodiscard]] bool is_plain_name(std::string_view name) noexcept;

// Whether it is a relative path of such names, with one slash between two of them.
[[nodiscard]] bool is_plain_path(std::string_view path) noexcept;

}  // namespace bitsnap::os
