// Verifies snapshots that are coded against each other side by side, so that each chunk is decoded once and not again
// for every one that depends on it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

namespace bitsnap::restore {

// What Snapshot::verify() finds in each, in their order; every chunk is decoded. Bases stand before what depends on
// them. Memory: for each thread some chunks of two snapshots.
[[nodiscard]] Result<std::vector<std::vector<Damage>>> verify_together(
    std::span<const std::shared_ptr<const Snapshot>> snapshots, const RunOptions& options);

}  // namespace bitsnap::restore
