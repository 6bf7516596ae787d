// Measures engines on a sample: in rounds, each of which runs every engine once, so that whatever else the machine does
// meets all of them alike; medians over the rounds; every round trip compared on bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>

#include "cli/bench_engine.hpp"
#include "cli/bench_sample.hpp"

namespace bitsnap::cli {

struct BenchLimits {
  std::vector<unsigned> threads;  // measured one after the other within each round
  unsigned rounds = 5;            // at most
  double seconds = 30;            // for all rounds; each engine gets one measurement in any case
};

struct BenchResult {
  std::string name;
  unsigned threads = 0;
  double ratio = 0;  // over the whole sample; chunks that the engine cannot take or shrink count as they are
  std::uint64_t encoded_bytes = 0;
  std::uint64_t covered_bytes = 0;  // of the chunks that the engine takes; the speeds are over these
  double encode_gbps = 0;
  double decode_gbps = 0;
  unsigned rounds = 0;
};

struct BenchOutcome {
  std::vector<BenchResult> results;  // engine by engine, fewest threads first; without engines that take nothing
  std::uint64_t smallest_encoded_bytes = 0;  // each chunk by whichever of the first `codec_engines` codes it smallest
};

// Told what is measured next and how much of the work is done, from 0 to 1; false cancels.
using BenchProgress = std::function<bool(std::string_view engine, double done)>;

// internal if a round trip gives other bits. `codec_engines`: how many of the engines, from the first on, are bitsnap's
// own codecs.
[[nodiscard]] Result<BenchOutcome> run_bench(const BenchSample& sample, const BenchEngines& engines,
                                             std::size_t codec_engines, const BenchLimits& limits,
                                             const BenchProgress& progress);

}  // namespace bitsnap::cli
