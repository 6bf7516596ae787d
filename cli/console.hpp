// The terminal, the standard streams and signals. Together with external_command.hpp, the only code of the command that
// calls the operating system.
#pragma once

#include <cstddef>
#include <cstdio>
#include <optional>

namespace bitsnap::cli {

[[nodiscard]] bool is_terminal(std::FILE* stream) noexcept;

// Width of the terminal behind the stream, in columns; nullopt if it is no terminal or its width is unknown.
[[nodiscard]] std::optional<std::size_t> terminal_width(std::FILE* stream) noexcept;

// Opens closed standard streams on /dev/null, so that no file that the command opens gets their numbers and receives
// messages.
void open_standard_streams() noexcept;

// After this call, the first SIGINT, SIGTERM or SIGHUP only asks the command to stop, so that it can remove its
// temporary files; the second one ends it at once. An ignored signal stays ignored (nohup).
void catch_interrupts() noexcept;

// The signal that asked the command to stop, or 0. Any thread may ask.
[[nodiscard]] int interrupt_signal() noexcept;

}  // namespace bitsnap::cli
