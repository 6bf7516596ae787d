// The limits that follow from the size of a file.
#include "container/file_limits.hpp"

#include <utility>

#include <fmt/format.h>

namespace bitsnap::container {

// 300,000 tensors that are all unchanged, the largest index for its file, take 1.7 MB: 45 MB of JSON, and 900,000
// values in the tree.
DecodeLimits limits_for(std::uint64_t file_bytes, const DecodeLimits& limits) {
  DecodeLimits lowered = limits;
  const auto bound = [&](std::uint64_t& limit, double floor, double per_byte) {
    const double derived = limits.max_cost * (floor + per_byte * static_cast<double>(file_bytes));
    if (derived < static_cast<double>(limit)) limit = static_cast<std::uint64_t>(derived);
  };
  bound(lowered.index_bytes, 64 << 20, 20);
  bound(lowered.tensors, 320'000, 0.2);
  bound(lowered.tree_nodes, 1'000'000, 0.5);
  return lowered;
}

Error with_remedy(Error error, std::uint64_t file_bytes, const DecodeLimits& limits) {
  if (error.kind() != ErrorKind::resource_exhausted) return error;
  return Error(error.kind(), fmt::format("{}; limits for a file of {} bytes, which BITSNAP_MAX_COST or --max-cost, now "
                                         "{}, raises",
                                         error.message(), file_bytes, limits.max_cost));
}

}  // namespace bitsnap::container
