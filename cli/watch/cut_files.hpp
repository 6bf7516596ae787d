// Finds files that end before their own formats say, as those do that a killed program has not finished.
#pragma once

#include <string>
#include <vector>

#include "cli/watch/raw_tree.hpp"

namespace bitsnap::cli {

// Why a file of the checkpoint is not complete; empty if none is known to be. Knows ZIP archives, which torch.save()
// writes, and safetensors files, and a checkpoint that is one empty file. Reads the ends of archives and the headers of
// safetensors files only. A file that cannot be read is none that is known to be cut.
[[nodiscard]] std::string find_cut_file(const std::string& path, const std::vector<RawEntry>& tree);

}  // namespace bitsnap::cli
