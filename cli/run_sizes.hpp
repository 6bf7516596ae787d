// What the checkpoints of a run cost, by role. Opens each snapshot, and decodes nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <bitsnap/store.hpp>

#include "cli/progress_bar.hpp"

namespace bitsnap::cli {

struct StoredRole {
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;

  StoredRole& operator+=(const StoredRole& other) noexcept;
};

struct CheckpointSizes {
  std::uint64_t step = 0;
  std::map<Role, StoredRole> roles;
  StoredRole pool;
  std::uint64_t overhead_bytes = 0;  // headers, indices and the commit record
  StoredRole total;                  // the roles, the pool and the overhead
  std::optional<Error> damage;       // it could not be opened; all else is 0 then

  // Adds up everything but step and damage.
  CheckpointSizes& operator+=(const CheckpointSizes& other);
};

// One for each checkpoint, by step. An error only for what is no damage of a checkpoint: an interrupt.
[[nodiscard]] Result<std::vector<CheckpointSizes>> measure_run(const Store& store, ProgressBar& bar);

}  // namespace bitsnap::cli
