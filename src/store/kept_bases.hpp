// What a handle of a run leaves to the next one of this process: the state that it saved last, in memory that the
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

// Leaves it for a few runs; the oldest goes first.
void leave_base(const RunKey& run, std::shared_ptr<BaseCache> cache);
// nullptr if none was left, or if another handle has it.
[[nodiscard]] std::shared_ptr<BaseCache> take_base(const RunKey& run);

}  // namespace bitsnap::store
