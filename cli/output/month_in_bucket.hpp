// What a run in an object store costs in a month: the bytes that it holds, and the requests of a training that goes on
// as before.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <bitsnap/store.hpp>

#include "cli/command.hpp"

namespace bitsnap::cli {

// In dollars. The defaults are S3's list prices of its standard class in us-east-1, in November 2026.
struct BucketPrices {
  double gigabyte = 0.023;  // for a month, of 10^9 bytes
  double writes = 0.005;    // a thousand requests that write or list
  double reads = 0.0004;    // a thousand others
};

struct MonthInBucket {
  std::uint64_t bytes = 0;
  // If the training saves as often as for the newest checkpoints; 0 if that is not known.
  double saves = 0;
  double writes = 0;        // requests of these saves
  double reads = 0;         // the same
  double lease_writes = 0;  // those of a writer that is there all the time
  BucketPrices prices;
};

// `held_bytes`: with what pruned checkpoints leave.
[[nodiscard]] MonthInBucket month_in_bucket(std::span<const Checkpoint> checkpoints, std::uint64_t held_bytes,
                                            const BucketPrices& prices);

[[nodiscard]] std::string render(const MonthInBucket& month);
[[nodiscard]] Json to_json(const MonthInBucket& month);

}  // namespace bitsnap::cli
