// What a handle of a run hands over to the next one of this process: the state that it saved last, in memory that the
// system may take back. Programs often open a store for each save. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "os/file_system.hpp"
#include "store/base_cache.hpp"

namespace bitsnap::store {

// Which run, and through which file system.
using RunKey = std::pair<const os::FileSystem*, std::string>;

// Keeps the cache for a handle to come, if it has been used for a save. It is kept for two runs; the older goes first.
void hand_over_base(const RunKey& run, std::shared_ptr<BaseCache> cache);
// nullptr if none was handed over, or if another handle has it.
[[nodiscard]] std::shared_ptr<BaseCache> take_over_base(const RunKey& run);

}  // namespace bitsnap::store
