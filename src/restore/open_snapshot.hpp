// Opens a snapshot from any file and file system; Snapshot::open does so with real ones.
#pragma once

#include <memory>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

#include "os/file_system.hpp"
#include "restore/decoded_state.hpp"

namespace bitsnap::restore {

// Unless the options have a provider, bases are searched in `file_system`, which must outlive the snapshot.
[[nodiscard]] Result<std::shared_ptr<const Snapshot>> open_snapshot(std::unique_ptr<os::RandomAccessFile> file,
                                                                    const OpenOptions& options,
                                                                    os::FileSystem& file_system);

// From now on, reads of `snapshot` copy the chunks in `decoded` instead of decoding them; nullptr ends this. Verifying
// reads the file only.
void attach_decoded(const Snapshot& snapshot, std::shared_ptr<const DecodedState> decoded);

}  // namespace bitsnap::restore
