// Exit codes of the command. Scripts rely on them: they are documented in docs/guide/cli.md and in --help, and do not
// change.
#pragma once

#include <bitsnap/error.hpp>

namespace bitsnap::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitDiffer = 1;       // `diff` only, as in diff(1)
inline constexpr int kExitUsage = 2;        // the command line itself is wrong
inline constexpr int kExitKindOffset = 10;  // an error of the library: this plus the value of its kind

[[nodiscard]] constexpr int exit_code(ErrorKind kind) noexcept { return kExitKindOffset + static_cast<int>(kind); }

// 128 plus the signal, as in shells.
[[nodiscard]] constexpr int exit_code_of_signal(int signal) noexcept { return 128 + signal; }

}  // namespace bitsnap::cli
