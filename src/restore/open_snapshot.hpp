// Opening a snapshot from any file and any file system: what Snapshot::open does with the real ones.
#pragma once

#include <memory>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

#include "os/file_system.hpp"

namespace bitsnap::restore {

// Bases are looked for in `file_system`, which has to outlive the snapshot, unless the options name a provider.
[[nodiscard]] Result<std::shared_ptr<const Snapshot>> open_snapshot(std::unique_ptr<os::RandomAccessFile> file,
                                                                    const OpenOptions& options,
                                                                    os::FileSystem& file_system);

}  // namespace bitsnap::restore
