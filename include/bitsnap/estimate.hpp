// What a run would hold on disk for checkpoints that exist, without writing it: some of their chunks are encoded in
// memory, as a save would encode them, and the store's own rules say what follows from their sizes.
//
// The same chunks of checkpoints that follow one another are compared. Which ones depends on the layout of the states
// alone, so the same input gives the same estimate on every machine and with any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/settings.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap {

// A checkpoint. `open` is called several times, and at most three states are open at a time. Memory is proportional to
// their tables of tensors.
struct EstimateSource {
  std::string name;  // for messages
  std::function<Result<std::shared_ptr<const State>>()> open;
};

struct EstimateOptions {
  CodingSettings settings = {};
  std::optional<std::uint64_t> keep_last = {};  // as Retention::keep_last; nullopt: the run keeps all checkpoints
  // Reads about this much of all checkpoints together, but at least 16 chunks of each role and dtype of each checkpoint
  // that is looked at. 0: everything.
  std::uint64_t sample_bytes = std::uint64_t{1} << 30;
  RunOptions run = {};
};

// The 95 % interval is [value - error, value + error]. The error is that of the sample, of chunks and of checkpoints: 0
// if everything was read.
struct Estimated {
  double value = 0;
  double error = 0;
};

// Shares are parts of the raw bytes.
struct PairEstimate {
  std::size_t checkpoint = 0;     // index of the later one of two
  double alone = 0;               // it, standalone
  std::optional<double> earlier;  // it, against the one before; nullopt if there is only one checkpoint, as the next
  std::optional<double> later;    // the one before, against it
};

// Of a run. If only one checkpoint is given, of one that gains nothing from coding against another checkpoint.
struct HeldEstimate {
  std::uint64_t kept = 0;       // checkpoints
  std::uint64_t raw_bytes = 0;  // of these
  // How the last checkpoints are coded with a retention: all new ones are standalone, and each is coded against the
  // next one when that is there (`backwards`); or of `period` new ones, the first is standalone, and the others are
  // coded against it.
  bool backwards = false;
  std::uint64_t period = 1;
  // Bytes after a save: the mean over the saves from the one on that makes `kept` checkpoints. Without a retention,
  // after the last one.
  Estimated mean;
  Estimated peak;     // bytes at most, while one of these is saved
  Estimated written;  // bytes for each of these, with what is written again
};

struct RunEstimate {
  std::uint64_t checkpoints = 0;
  std::uint64_t raw_bytes = 0;      // of all checkpoints
  std::uint64_t read_bytes = 0;     // of them, at least once
  std::vector<PairEstimate> pairs;  // those that were looked at
  Estimated alone;                  // their means
  std::optional<Estimated> earlier;
  std::optional<Estimated> later;
  double unmatched =
      0;  // share of the bytes in tensors that the checkpoint before does not have, at most over all pairs

  HeldEstimate these;                    // a run of these checkpoints
  std::optional<HeldEstimate> long_run;  // one that goes on, with checkpoints alike in the mean; with a retention only
};

// `checkpoints` are in the order of the training. invalid_argument for no checkpoint, for settings out of range, and
// for neighbours that have no tensor in common; otherwise the errors of `open` and of reading.
[[nodiscard]] Result<RunEstimate> estimate_run(const std::vector<EstimateSource>& checkpoints,
                                               const EstimateOptions& options = {});

}  // namespace bitsnap
