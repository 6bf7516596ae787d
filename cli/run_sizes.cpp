// Bytes of the checkpoints of a run, by role.
#include "cli/run_sizes.hpp"

#include "cli/error_macros.hpp"
#include "cli/stored_sizes.hpp"

namespace bitsnap::cli {

namespace {

Result<CheckpointSizes> measure_checkpoint(const Store& store, const CheckpointInfo& info) {
  CheckpointSizes sizes;
  std::uint64_t chunk_bytes = 0;
  for (std::uint32_t shard = 0; shard < info.shards; ++shard) {
    BITSNAP_ASSIGN(auto snapshot, store.snapshot(info.step, shard));
    BITSNAP_ASSIGN(auto measured, measure_sizes(*snapshot));
    for (const auto& [role, role_sizes] : measured.roles) {
      sizes.roles[role] += {role_sizes.raw_bytes, role_sizes.stored_bytes};
    }
    if (measured.pool) {
      const StreamSizes& pool = measured.streams[*measured.pool];
      sizes.pool += {pool.raw_bytes, pool.stored_bytes};
    }
    chunk_bytes += measured.total.stored_bytes;
    sizes.total.raw_bytes += measured.total.raw_bytes;
  }
  sizes.total.stored_bytes = info.stored_bytes;
  sizes.overhead_bytes = info.stored_bytes > chunk_bytes ? info.stored_bytes - chunk_bytes : 0;
  return sizes;
}

}  // namespace

StoredRole& StoredRole::operator+=(const StoredRole& other) noexcept {
  raw_bytes += other.raw_bytes;
  stored_bytes += other.stored_bytes;
  return *this;
}

CheckpointSizes& CheckpointSizes::operator+=(const CheckpointSizes& other) {
  for (const auto& [role, sizes] : other.roles) {
    roles[role] += sizes;
  }
  pool += other.pool;
  overhead_bytes += other.overhead_bytes;
  total += other.total;
  return *this;
}

Result<std::vector<CheckpointSizes>> measure_run(const Store& store, ProgressBar& bar) {
  BITSNAP_ASSIGN(auto checkpoints, store.list());
  std::vector<CheckpointSizes> sizes;
  for (const CheckpointInfo& info : checkpoints) {
    if (!bar.update(sizes.size(), checkpoints.size())) {
      return fail(ErrorKind::cancelled, "interrupted");
    }
    auto measured =
        info.damage ? Result<CheckpointSizes>(tl::unexpected(*info.damage)) : measure_checkpoint(store, info);
    CheckpointSizes& entry = sizes.emplace_back();
    if (measured) {
      entry = std::move(*measured);
    } else {
      entry.damage = std::move(measured).error();
    }
    entry.step = info.step;
  }
  return sizes;
}

}  // namespace bitsnap::cli
