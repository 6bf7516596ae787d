// Patterns for names of tensors, as shells have them for files: `*` for any characters, points included, `?` for one.
#pragma once

#include <string_view>

namespace bitsnap::cli {

// Whether the pattern matches the whole name.
[[nodiscard]] bool matches_glob(std::string_view pattern, std::string_view name) noexcept;

}  // namespace bitsnap::cli
