// Bytes of the checkpoints of a run, by role. Opens each snapshot and decodes nothing.
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
  std::optional<Error> damage;       // set if the checkpoint cannot be opened; all sizes are 0 then

  // Adds all sizes; `step` and `damage` stay.
  CheckpointSizes& operator+=(const CheckpointSizes& other);
};

// One entry per checkpoint, by step. Damaged checkpoints are entries, too; fails only at an interrupt.
[[nodiscard]] Result<std::vector<CheckpointSizes>> measure_run(const Store& store, ProgressBar& bar);

}  // namespace bitsnap::cli
