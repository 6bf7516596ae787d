// Stored bytes and codecs of each tensor of a snapshot, of each role and of the file. Nothing is decoded.
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

struct RoleSizes {
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;
};

struct SnapshotSizes {
  std::vector<StreamSizes> streams;  // as in Snapshot::streams()
  std::optional<std::size_t> pool;   // index of the pool's stream
  std::uint64_t pooled_tensors = 0;
  // Of tensors with a stream of their own and of empty ones; aliases count as tensors only.
  std::map<Role, RoleSizes> roles;
  RoleSizes total;                   // all streams; `stored_bytes` without header and index
  std::uint64_t overhead_bytes = 0;  // header, index, footer
  std::uint32_t depth = 0;
};

[[nodiscard]] Result<SnapshotSizes> measure_sizes(const Snapshot& snapshot);

// Roles are shown in this order.
inline constexpr std::array<Role, 5> kRoleOrder = {Role::weight, Role::master, Role::exp_avg, Role::exp_avg_sq,
                                                   Role::other};

// A table of the roles with a total, as `inspect` and `compress -v` show it.
[[nodiscard]] std::string render_roles(const Snapshot& snapshot, const SnapshotSizes& sizes,
                                       std::optional<std::size_t> width);

}  // namespace bitsnap::cli
