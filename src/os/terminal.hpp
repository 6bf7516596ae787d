// Whether a stream is a terminal, and its width. `fd`: 0, 1 or 2 for the standard streams.
#pragma once

#include <optional>

namespace bitsnap::os {

[[nodiscard]] bool is_terminal(int fd) noexcept;

// In columns; nullopt if the stream is no terminal or its width is unknown.
[[nodiscard]] std::optional<unsigned> terminal_width(int fd) noexcept;

}  // namespace bitsnap::os
