// Opening a snapshot from any file and any file system: what Snapshot::open does with the real ones.
#pragma once

#include <memory>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

#include "os/file_system.hpp"
#include "restore/warm_chunks.hpp"

namespace bitsnap::restore {

// Bases are looked for in `file_system`, which has to outlive the snapshot, unless the options name a provider.
[[nodiscard]] Result<std::shared_ptr<const Snapshot>> open_snapshot(std::unique_ptr<os::RandomAccessFile> file,
                                                                    const OpenOptions& options,
                                                                    os::FileSystem& file_system);

// From now on chunks are looked for there before they are decoded, by whoever reads from the snapshot; nullptr: no
// longer. Verifying never looks there.
void offer_warm_chunks(const Snapshot& snapshot, std::shared_ptr<const WarmChunks> warm);

}  // namespace bitsnap::restore
