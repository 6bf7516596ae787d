// Locks on files of the real file system. Used by src/os only. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "os/file_system.hpp"
#include "os/path_at_posix.hpp"

namespace bitsnap::os {

// FileSystem::lock() of the real file system. `path`, for messages, is where `at` leads.
[[nodiscard]] Result<std::unique_ptr<FileLock>> lock_file(const PathAt& at, const std::string& path, LockKind kind);

}  // namespace bitsnap::os
