// The limits that follow from the size of a file.
#include "container/file_limits.hpp"

#include <fmt/format.h>

namespace bitsnap::container {

// Loading takes up to 5 bytes of memory for each byte of an index, 1,800 for each tensor, most of them for the objects
// of Python and PyTorch, and 200 for each value. No training is near: 300,000 tensors of 2 KB take 100 MB or more, for
// 45 MB of JSON and 900,000 values. Only files that hold changes of many small tensors are: the writer compresses an
// index that would be above less, and uncompressed JSON needs at least 2 bytes for a value, 8 for an entry of metadata
// and 50 for a tensor or for 32 of its dimensions.
DecodeLimits limits_for(std::uint64_t file_bytes, const DecodeLimits& limits) {
  DecodeLimits lowered = limits;
  const auto bound = [&](std::uint64_t& limit, double floor, double per_byte) {
    const double derived = limits.max_cost * (floor + per_byte * static_cast<double>(file_bytes));
    if (derived < static_cast<double>(limit)) limit = static_cast<std::uint64_t>(derived);
  };
  bound(lowered.index_bytes, 8 << 20, 8);
  bound(lowered.tensors, 16'384, 1.0 / 50);
  bound(lowered.metadata_entries, 16'384, 1.0 / 8);
  bound(lowered.tree_nodes, 65'536, 1.0 / 2);
  return lowered;
}

Error with_remedy(Error error, std::uint64_t file_bytes, const DecodeLimits& limits) {
  if (error.kind() != ErrorKind::resource_exhausted) return error;
  return Error(error.kind(), fmt::format("{}; limits for a file of {} bytes, which BITSNAP_MAX_COST or --max-cost, now "
                                         "{}, raises",
                                         error.message(), file_bytes, limits.max_cost));
}

}  // namespace bitsnap::container
