// Verifies snapshots that are coded against each other side by side, so that each chunk is decoded once, not once for
// every chunk that depends on it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

namespace bitsnap::restore {

// Returns what Snapshot::verify() finds in each snapshot, in their order; every chunk is decoded. Bases come before the
// snapshots that depend on them. Memory: a few chunks of two snapshots for each thread.
[[nodiscard]] Result<std::vector<std::vector<Damage>>> verify_together(
    std::span<const std::shared_ptr<const Snapshot>> snapshots, const RunOptions& options);

}  // namespace bitsnap::restore
