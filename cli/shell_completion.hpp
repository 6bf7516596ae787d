// Scripts that complete the command bitsnap in bash, zsh and fish, made from what the command line declares.
#pragma once

#include <string>

#include "cli/command_tree.hpp"

namespace bitsnap::cli {

// Each completes commands, options and the values of options that have a list of them, and files elsewhere.
[[nodiscard]] std::string bash_completion(const CommandText& program);
[[nodiscard]] std::string zsh_completion(const CommandText& program);
[[nodiscard]] std::string fish_completion(const CommandText& program);

}  // namespace bitsnap::cli
