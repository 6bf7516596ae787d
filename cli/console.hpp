// What the command asks the operating system about its standard streams, and the signals that end it. Beside
// external_command.hpp the only code of the command that is not plain C++.
#pragma once

#include <cstddef>
#include <cstdio>
#include <optional>

namespace bitsnap::cli {

[[nodiscard]] bool is_terminal(std::FILE* stream) noexcept;

// Columns of the terminal behind the stream; nothing where there is none or it does not say.
[[nodiscard]] std::optional<std::size_t> terminal_width(std::FILE* stream) noexcept;

// Opens what of the standard streams is closed on /dev/null, so that no file of ours gets their numbers and what is
// meant for people ends in it.
void open_standard_streams() noexcept;

// From here on the first SIGINT, SIGTERM or SIGHUP only asks the command to stop, so that it can take its temporary
// files away; the second one ends it at once. A signal that was ignored stays ignored (nohup).
void catch_interrupts() noexcept;

// The signal that asked the command to stop, or 0. Any thread may ask.
[[nodiscard]] int interrupt_signal() noexcept;

}  // namespace bitsnap::cli
