// Whether people read an output, and how wide they see it. `fd`: 0, 1 or 2 for the standard streams.
#pragma once

#include <optional>

namespace bitsnap::os {

[[nodiscard]] bool is_terminal(int fd) noexcept;

// Columns; nothing if it is no terminal or does not say.
[[nodiscard]] std::optional<unsigned> terminal_width(int fd) noexcept;

}  // namespace bitsnap::os
