// The manual page bitsnap(1), made from what the command line declares.
#pragma once

#include <string>

#include "cli/command_tree.hpp"

namespace bitsnap::cli {

// In the macros of man(7), which groff and mandoc render.
[[nodiscard]] std::string manual_page(const CommandText& program);

}  // namespace bitsnap::cli
