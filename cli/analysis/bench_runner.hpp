// The chunks that `bench` measures on, all of a file or an even sample of them, and the measurement of coders: in
// rounds, each of which runs every coder once, so that other load of the machine slows all of them alike. Reports
// medians over the rounds, and compares every round trip bit by bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/coder.hpp>
#include <bitsnap/error.hpp>

#include "cli/analysis/baseline_coders.hpp"
#include "cli/input/training_input.hpp"

namespace bitsnap::cli {

struct BenchSample {
  std::vector<CoderChunk> chunks;  // in memory of this sample
  std::uint64_t bytes = 0;         // of the chunks
  std::uint64_t total_bytes = 0;   // of all tensors of the file, tied ones once
  std::uint64_t based_bytes = 0;   // of chunks that have a base

  std::vector<std::unique_ptr<std::byte[]>> memory;
};

// Which chunks are taken depends on their sizes and order only. A chunk has a base where `base` (may be nullptr) has a
// tensor of that name, dtype and size. Not much more than `limit_bytes` are taken.
// bench_sample.cpp
[[nodiscard]] Result<BenchSample> load_sample(const TensorFile& file, const TensorFile* base,
                                              std::uint64_t limit_bytes);

struct BenchLimits {
  std::vector<unsigned> threads;  // measured one after the other within each round
  unsigned rounds = 5;            // at most
  double seconds = 30;            // for all rounds; each coder gets one measurement in any case
};

struct BenchResult {
  std::string name;
  unsigned threads = 0;
  double ratio = 0;  // over the whole sample; chunks that the coder cannot encode or shrink count with their raw size
  std::uint64_t encoded_bytes = 0;
  std::uint64_t covered_bytes = 0;  // of the chunks that the coder encodes; speeds are over these bytes
  double encode_gbps = 0;
  double decode_gbps = 0;
  double encode_of_memcpy = 0;  // as shares of the speeds of memcpy with as many threads
  double decode_of_memcpy = 0;
  unsigned rounds = 0;
};

struct BenchOutcome {
  std::vector<BenchResult> results;  // coder by coder, fewest threads first; without coders that encode no chunk
  std::uint64_t smallest_encoded_bytes = 0;  // each chunk by whichever of the first `codecs` coders codes it smallest
};

// Called with the coder that is measured next and the share of the work that is done, 0 to 1; false cancels.
using BenchProgress = std::function<bool(std::string_view coder, double done)>;

// Fails with ErrorKind::internal if a round trip gives other bits. The first `codecs` of the coders are bitsnap's own.
[[nodiscard]] Result<BenchOutcome> run_bench(const BenchSample& sample, const Coders& coders, std::size_t codecs,
                                             const BenchLimits& limits, const BenchProgress& progress);

}  // namespace bitsnap::cli
