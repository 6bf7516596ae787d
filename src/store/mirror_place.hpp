// Where a copy of a run may be made: what is wrong with other places. No state; any thread.
#pragma once

#include <string>

#include <bitsnap/error.hpp>

#include "os/file_system.hpp"

namespace bitsnap::store {

// invalid_argument unless the path is one of a disk, or the address of a run in a bucket: a key with single slashes.
[[nodiscard]] Result<void> check_run_address(const std::string& path);

// invalid_argument unless a run is at `root`, or may be made there. Looks only.
[[nodiscard]] Result<void> check_copy_place(os::FileSystem& files, const std::string& root);

}  // namespace bitsnap::store
