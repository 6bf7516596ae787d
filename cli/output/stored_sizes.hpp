// Stored bytes and codecs of each tensor of a snapshot, and stored bytes of each role of a file, a checkpoint or a run.
// Nothing is decoded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

#include "cli/command.hpp"

namespace bitsnap::cli {

// The chunks of one stream.
struct StreamSizes {
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t chunks = 0;
  std::uint32_t depth = 0;                      // of its deepest chunk
  std::map<std::string, std::uint64_t> codecs;  // chunks by codec; "+base" if it used the base

  // The codec's name, or "mix".
  [[nodiscard]] std::string codec() const;
  // "float_split 3, raw 1"
  [[nodiscard]] std::string codec_counts() const;
};

// Of one role, or of several tensors together.
struct RoleSizes {
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;

  RoleSizes& operator+=(const RoleSizes& other) noexcept;
};
void to_json(Json& json, const RoleSizes& sizes);

// Of a file, a checkpoint or a run.
struct Sizes {
  // Of tensors with a stream of their own and of empty ones; aliases count as tensors only.
  std::map<Role, RoleSizes> roles;
  RoleSizes pool;                    // small tensors; no tensors if there is none
  std::uint64_t overhead_bytes = 0;  // headers, indices, footers and commit records
  RoleSizes total;                   // all of the above

  Sizes& operator+=(const Sizes& other);
};

struct SnapshotSizes : Sizes {
  std::vector<StreamSizes> streams;        // as in Snapshot::streams()
  std::optional<std::size_t> pool_stream;  // index of the pool's stream
  std::uint32_t depth = 0;
};

[[nodiscard]] Result<SnapshotSizes> measure_sizes(const Snapshot& snapshot);

// Roles are shown in this order.
inline constexpr std::array<Role, 5> kRoleOrder = {Role::weight, Role::master, Role::exp_avg, Role::exp_avg_sq,
                                                   Role::other};

// The sizes by the names of their roles.
[[nodiscard]] Json roles_json(const std::map<Role, RoleSizes>& roles);

// A table of the roles with a total. `needed_bytes` of the total belong to pruned checkpoints.
[[nodiscard]] std::string render_roles(const Sizes& sizes, std::optional<std::size_t> width,
                                       std::uint64_t needed_bytes = 0);

}  // namespace bitsnap::cli
