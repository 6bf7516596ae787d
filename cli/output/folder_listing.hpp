// What a folder in a snapshot holds, for `inspect`.
#pragma once

#include <string>

#include <bitsnap/folder.hpp>

#include "cli/command.hpp"

namespace bitsnap::cli {

[[nodiscard]] Json folder_json(const Folder& folder);

// A table of its files, links and empty directories.
[[nodiscard]] std::string render_folder(const Folder& folder, const CommonOptions& common);

}  // namespace bitsnap::cli
