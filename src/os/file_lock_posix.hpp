// Locks on files of the real file system. Used by src/os only. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "os/file_system.hpp"

namespace bitsnap::os {

// FileSystem::lock() of the real file system.
[[nodiscard]] Result<std::unique_ptr<FileLock>> lock_file(const std::string& path, LockKind kind);

}  // namespace bitsnap::os
