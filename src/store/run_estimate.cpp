// estimate_run(): encodes samples of pairs of checkpoints on trial, and plays the run that follows from their sizes.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <bitsnap/estimate.hpp>
#include <bitsnap/store.hpp>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/chunk_table.hpp"
#include "exec/executor.hpp"
#include "save/trial_encoding.hpp"
#include "store/chunk_draws.hpp"
#include "store/retention_forecast.hpp"

namespace bitsnap {
namespace {

using save::TrialState;
using store::SampledShare;
using store::TrialShares;
using TrialStatePtr = std::shared_ptr<const TrialState>;

// Of a sample. Each pair costs two states.
constexpr std::size_t kMostPairs = 4;
// Checkpoints that are farther apart are expected to gain as little as these, or less.
constexpr std::size_t kLongestMeasured = 4;

// What the later one of two checkpoints, and the earlier one against it, take.
struct MeasuredPair {
  std::size_t checkpoint = 0;
  SampledShare alone;
  SampledShare keyframe;
  std::optional<SampledShare> earlier;
  std::optional<SampledShare> later;
};

// The result of everything, of one of the subsamples, or of all pairs but that of one checkpoint.
struct Part {
  std::optional<std::size_t> subsample;
  std::optional<std::size_t> left_out;
};

std::uint64_t tensor_bytes(const State& state) {
  std::uint64_t bytes = 0;
  for (const TensorSource& tensor : state.tensors) bytes += tensor.info.alias_of ? 0 : tensor.info.size_bytes;
  return bytes;
}

// By role and dtype of the tensor; the pool is another stratum.
std::vector<store::SampledUnit> units_of(const TrialState& state) {
  std::vector<store::SampledUnit> units;
  for (const StreamInfo& stream : state.streams()) {
    std::uint32_t stratum = UINT32_MAX;
    if (stream.tensor) {
      const Role role = state.tensors()[*stream.tensor].role;
      stratum = static_cast<std::uint32_t>(role) * 256U + static_cast<std::uint32_t>(stream.dtype);
    }
    for (std::uint64_t chunk = 0; chunk < stream.chunk_count(); ++chunk) {
      units.push_back({container::chunk_elements(stream, chunk) * element_size(stream.dtype), stratum});
    }
  }
  return units;
}

// Evenly spread, with the last one, and with the first one: what that gains decides what the next ones are coded
// against.
std::vector<std::size_t> spread(std::size_t count, std::size_t wanted) {
  std::vector<std::size_t> chosen;
  wanted = std::min(count, wanted);
  for (std::size_t i = 0; i < wanted; ++i) chosen.push_back(wanted == 1 ? count - 1 : i * (count - 1) / (wanted - 1));
  return chosen;
}

class RunEstimator {
 public:
  RunEstimator(const std::vector<EstimateSource>& checkpoints, const EstimateOptions& options)
      : checkpoints_(checkpoints), options_(options), executor_(exec::make_executor(options.run.threads)) {}

  Result<RunEstimate> run() {
    BITSNAP_TRY(check());
    BITSNAP_TRY(measure());
    summarize();
    return std::move(estimate_);
  }

 private:
  Result<void> check() {
    if (checkpoints_.empty()) return fail(ErrorKind::invalid_argument, "checkpoints must not be empty");
    BITSNAP_TRY(check_settings(options_.settings));
    BITSNAP_TRY(check_retention({.keep_last = options_.keep_last}));
    settings_ = merge_settings(options_.settings, default_settings());
    for (const EstimateSource& checkpoint : checkpoints_) {
      BITSNAP_ASSIGN(const std::shared_ptr<const State> state, checkpoint.open());
      raw_bytes_.push_back(tensor_bytes(*state));
      estimate_.raw_bytes += raw_bytes_.back();
    }
    estimate_.checkpoints = checkpoints_.size();
    read_bytes_.resize(checkpoints_.size());
    return {};
  }

  Result<void> measure() {
    const std::size_t pairs = checkpoints_.size() - 1;
    const bool is_whole = options_.sample_bytes == 0 || options_.sample_bytes >= estimate_.raw_bytes;
    const std::vector<std::size_t> chosen = spread(pairs, is_whole ? pairs : kMostPairs);
    const std::uint64_t states = std::max<std::uint64_t>(1, 2 * chosen.size());
    sample_bytes_ = is_whole ? UINT64_MAX : options_.sample_bytes / states;
    const std::uint64_t mean = estimate_.raw_bytes / checkpoints_.size();
    planned_bytes_ = std::min(mean, sample_bytes_) * std::max<std::size_t>(1, 3 * chosen.size());
    if (pairs == 0) {
      BITSNAP_ASSIGN(const TrialStatePtr only, open(0));
      MeasuredPair& pair = pairs_.emplace_back();
      return measure_alone(*only, pair, {});
    }
    TrialStatePtr before;
    for (const std::size_t i : chosen) {
      // The later one of the pair before is often the earlier one of this pair.
      if (before == nullptr || opened_ != i) {
        BITSNAP_ASSIGN(before, open(i));
      }
      BITSNAP_ASSIGN(TrialStatePtr after, open(i + 1));
      BITSNAP_TRY(measure_pair(before, after, i + 1));
      before = std::move(after);
      opened_ = i + 1;
    }
    before = nullptr;
    return measure_distances(chosen);
  }

  // The bytes that are read are counted when the state is closed.
  Result<TrialStatePtr> open(std::size_t checkpoint) {
    const EstimateSource& source = checkpoints_[checkpoint];
    BITSNAP_ASSIGN(auto state, source.open());
    const std::uint32_t max_depth = *settings_.max_depth;
    // Of the base of a checkpoint of a chain, in the mean; a base is standalone in a run with a retention.
    const std::uint32_t depth =
        options_.keep_last || max_depth == 0 || settings_.base == BaseRule::keyframe ? 0 : (max_depth - 1) / 2;
    BITSNAP_ASSIGN(auto made, TrialState::make(source.name, std::move(state), settings_, depth, *executor_));
    return TrialStatePtr(made.get(), [this, owner = made, checkpoint](const TrialState* closed) {
      read_bytes_[checkpoint] = std::min(raw_bytes_[checkpoint], read_bytes_[checkpoint] + closed->read_bytes());
    });
  }

  [[nodiscard]] store::ChunkDraws draw(const TrialState& state, std::uint64_t seed) const {
    return {units_of(state), sample_bytes_, seed};
  }

  Result<save::TrialSizes> encode(const TrialState& state, const store::ChunkDraws& draws, TrialStatePtr base,
                                  bool is_later) {
    save::TrialOptions trial{.settings = settings_, .base = std::move(base), .base_is_later = is_later};
    trial.done = [this](std::uint64_t raw_bytes) -> Result<void> {
      done_bytes_ = std::min(done_bytes_ + raw_bytes, planned_bytes_);
      if (!options_.run.progress || options_.run.progress(done_bytes_, planned_bytes_)) return {};
      return fail(ErrorKind::cancelled, "estimating was cancelled by the caller");
    };
    return save::encode_on_trial(state, draws.numbers(), trial, *executor_);
  }

  // `earlier`: the sizes of the same chunks against the checkpoint before; empty: there is none.
  Result<void> measure_alone(const TrialState& state, MeasuredPair& pair, const save::TrialSizes& earlier) {
    const store::ChunkDraws draws = draw(state, pair.checkpoint);
    BITSNAP_ASSIGN(save::TrialSizes alone, encode(state, draws, nullptr, false));
    pair.alone = share_of(state, draws, alone);
    for (std::size_t i = 0; i < earlier.chunks.size(); ++i) {
      if (earlier.chunks[i].is_same) alone.chunks[i] = earlier.chunks[i];
    }
    pair.keyframe = share_of(state, draws, alone);
    return {};
  }

  Result<void> measure_pair(const TrialStatePtr& before, const TrialStatePtr& after, std::size_t checkpoint) {
    BITSNAP_TRY(check_alike(*before, *after));
    MeasuredPair pair;
    pair.checkpoint = checkpoint;
    const store::ChunkDraws draws = draw(*after, checkpoint);
    BITSNAP_ASSIGN(const save::TrialSizes earlier, encode(*after, draws, before, false));
    pair.earlier = share_of(*after, draws, earlier);
    BITSNAP_TRY(measure_alone(*after, pair, earlier));
    const store::ChunkDraws draws_before = draw(*before, checkpoint);
    BITSNAP_ASSIGN(const save::TrialSizes later, encode(*before, draws_before, after, true));
    pair.later = share_of(*before, draws_before, later);
    pairs_.push_back(std::move(pair));
    return {};
  }

  // Of the state: the payloads of its chunks, and the tables of its file.
  static SampledShare share_of(const TrialState& state, const store::ChunkDraws& draws, const save::TrialSizes& sizes) {
    std::vector<double> shares;
    for (const save::TrialChunk& chunk : sizes.chunks) {
      shares.push_back(static_cast<double>(chunk.stored_bytes) / static_cast<double>(chunk.raw_bytes));
    }
    SampledShare share = draws.share(shares);
    std::uint64_t raw_bytes = 0;
    for (const StreamInfo& stream : state.streams()) raw_bytes += stream.elements * element_size(stream.dtype);
    if (raw_bytes == 0) return share;
    const double tables = static_cast<double>(sizes.table_bytes) / static_cast<double>(raw_bytes);
    share.all += tables;
    for (double& each : share.subsamples) each += tables;
    return share;
  }

  // Fails if two checkpoints have no tensor in common, apart from the other bytes of their files.
  Result<void> check_alike(const TrialState& before, const TrialState& after) {
    std::uint64_t all = 0;
    std::uint64_t matched = 0;
    std::size_t tensors = 0;
    for (const StreamInfo& stream : after.streams()) {
      if (!stream.tensor || stream.dtype == DType::opaque) continue;
      const TensorInfo& tensor = after.tensors()[*stream.tensor];
      const std::optional<std::size_t> found = before.find(tensor.name);
      const bool is_matched = found && before.tensors()[*found].dtype_name == tensor.dtype_name &&
                              before.tensors()[*found].size_bytes == tensor.size_bytes;
      ++tensors;
      all += tensor.size_bytes;
      matched += is_matched ? tensor.size_bytes : 0;
    }
    if (all == 0) return {};
    if (matched == 0) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{}: none of its {} tensors has the name, dtype and size of one in {}; expected "
                              "checkpoints of one training, in their order",
                              after.name(), tensors, before.name()));
    }
    estimate_.unmatched = std::max(estimate_.unmatched, static_cast<double>(all - matched) / static_cast<double>(all));
    return {};
  }

  // How far apart the run codes checkpoints against one another, as far as it is measured.
  [[nodiscard]] std::size_t measured_distance() const {
    std::size_t distance = 1;
    if (options_.keep_last) {
      distance = store::longest_distance(forecast_long_run({}).pattern);
    } else if (settings_.base == BaseRule::keyframe) {
      distance = *settings_.max_depth;
    }
    return std::min({distance, kLongestMeasured, checkpoints_.size() - 1});
  }

  Result<void> measure_distances(const std::vector<std::size_t>& chosen) {
    const std::size_t longest = measured_distance();
    for (std::size_t distance = 2; distance <= longest; ++distance) {
      std::vector<MeasuredPair>& measured = farther_.emplace_back();
      for (const std::size_t i : chosen) {
        const std::size_t checkpoint = i + 1;
        if (checkpoint < distance) continue;
        BITSNAP_ASSIGN(const TrialStatePtr before, open(checkpoint - distance));
        BITSNAP_ASSIGN(const TrialStatePtr after, open(checkpoint));
        MeasuredPair& pair = measured.emplace_back();
        pair.checkpoint = checkpoint;
        const store::ChunkDraws draws = draw(*after, checkpoint);
        BITSNAP_ASSIGN(const save::TrialSizes earlier, encode(*after, draws, before, false));
        pair.earlier = share_of(*after, draws, earlier);
        const store::ChunkDraws draws_before = draw(*before, checkpoint);
        BITSNAP_ASSIGN(const save::TrialSizes later, encode(*before, draws_before, after, true));
        pair.later = share_of(*before, draws_before, later);
      }
    }
    return {};
  }

  // What was measured on checkpoints, for those between them: on a straight line. `share` returns the checkpoint that
  // it is a share of, and the share. nullopt: the mean over all.
  template <typename Share>
  [[nodiscard]] static double share_at(const std::vector<MeasuredPair>& pairs, const Part& part,
                                       std::optional<std::size_t> checkpoint, const Share& share) {
    double sum = 0;
    double count = 0;
    std::optional<std::pair<std::size_t, double>> below;
    for (const MeasuredPair& pair : pairs) {
      if (part.left_out == pair.checkpoint && pairs.size() > 1) continue;
      const auto [place, sampled] = share(pair);
      const double value = part.subsample ? sampled.subsamples[*part.subsample] : sampled.all;
      sum += value;
      ++count;
      if (!checkpoint) continue;
      if (place >= *checkpoint) {
        if (!below || place == *checkpoint) return value;
        const double way = static_cast<double>(*checkpoint - below->first) / static_cast<double>(place - below->first);
        return below->second + (value - below->second) * way;
      }
      below = {place, value};
    }
    return checkpoint && below ? below->second : sum / count;
  }

  // Of a checkpoint, or of all in the mean.
  [[nodiscard]] TrialShares shares_of(const Part& part, std::optional<std::size_t> checkpoint = std::nullopt) const {
    using Place = std::pair<std::size_t, SampledShare>;
    const auto earlier = [](const MeasuredPair& pair) {
      return Place(pair.checkpoint, pair.earlier.value_or(pair.alone));
    };
    TrialShares shares;
    shares.alone =
        share_at(pairs_, part, checkpoint, [](const MeasuredPair& pair) { return Place(pair.checkpoint, pair.alone); });
    shares.keyframe = share_at(pairs_, part, checkpoint,
                               [](const MeasuredPair& pair) { return Place(pair.checkpoint, pair.keyframe); });
    for (std::size_t distance = 1; distance <= farther_.size() + 1; ++distance) {
      const std::vector<MeasuredPair>& measured = distance == 1 ? pairs_ : farther_[distance - 2];
      const auto later = [distance](const MeasuredPair& pair) {
        return Place(pair.checkpoint - std::min(pair.checkpoint, distance), pair.later.value_or(pair.alone));
      };
      shares.earlier.push_back(share_at(measured, part, checkpoint, earlier));
      shares.later.push_back(share_at(measured, part, checkpoint, later));
    }
    store::expect_farther(shares);
    return shares;
  }

  [[nodiscard]] store::Forecast forecast(const Part& part) const {
    std::vector<TrialShares> shares;
    for (std::size_t i = 0; i < checkpoints_.size(); ++i) shares.push_back(shares_of(part, i));
    const std::uint32_t max_depth = *settings_.max_depth;
    if (options_.keep_last) return store::forecast_retention(shares, *options_.keep_last, max_depth);
    return store::forecast_chain(shares, max_depth, *settings_.base);
  }

  [[nodiscard]] store::Forecast forecast_long_run(const Part& part) const {
    return store::forecast_long_run(shares_of(part), *options_.keep_last, *settings_.max_depth);
  }

  // The errors of the sampled chunks and of the sampled checkpoints are independent. The latter is a jackknife: how far
  // the result moves when one pair is left out.
  template <typename Value>
  [[nodiscard]] Estimated estimated(const Value& value) const {
    std::vector<double> subsamples;
    for (std::size_t i = 0; i < store::kSubsamples; ++i) {
      subsamples.push_back(value(Part{.subsample = i, .left_out = {}}));
    }
    Estimated result{.value = value(Part{}), .error = store::error_of_mean(subsamples)};
    const std::size_t all = checkpoints_.size() - 1;
    if (pairs_.size() < 2 || pairs_.size() >= all) return result;
    std::vector<double> without;
    for (const MeasuredPair& pair : pairs_)
      without.push_back(value(Part{.subsample = {}, .left_out = pair.checkpoint}));
    const double unseen = 1 - static_cast<double>(pairs_.size()) / static_cast<double>(all);
    const double of_pairs = static_cast<double>(pairs_.size() - 1) * store::error_of_mean(without) * std::sqrt(unseen);
    // std::hypot() would bind the program to glibc 2.35.
    result.error = std::sqrt(result.error * result.error + of_pairs * of_pairs);
    return result;
  }

  // `play(part)` forecasts a run from a part of the measurements.
  template <typename Play>
  [[nodiscard]] HeldEstimate held_of(const Play& play, std::uint64_t kept) const {
    HeldEstimate held;
    const double raw_bytes = static_cast<double>(estimate_.raw_bytes) / static_cast<double>(checkpoints_.size());
    const auto in_bytes = [&](double store::Forecast::* figure) {
      return estimated([&](const Part& part) { return play(part).*figure * raw_bytes; });
    };
    held.kept = kept;
    held.raw_bytes = static_cast<std::uint64_t>(raw_bytes * static_cast<double>(kept));
    const store::CodingPattern pattern = play(Part{}).pattern;
    held.backwards = pattern.backwards;
    held.period = pattern.period;
    held.mean = in_bytes(&store::Forecast::held);
    held.peak = in_bytes(&store::Forecast::peak);
    held.written = in_bytes(&store::Forecast::written);
    return held;
  }

  void summarize() {
    const bool has_pairs = checkpoints_.size() > 1;
    for (const MeasuredPair& pair : pairs_) {
      PairEstimate& shown = estimate_.pairs.emplace_back();
      shown.checkpoint = pair.checkpoint;
      shown.alone = pair.alone.all;
      if (pair.earlier) shown.earlier = pair.earlier->all;
      if (pair.later) shown.later = pair.later->all;
    }
    estimate_.alone = estimated([this](const Part& part) { return shares_of(part).alone; });
    if (has_pairs) {
      estimate_.earlier = estimated([this](const Part& part) { return shares_of(part).earlier.front(); });
      estimate_.later = estimated([this](const Part& part) { return shares_of(part).later.front(); });
    }
    const std::uint64_t given = checkpoints_.size();
    estimate_.these = held_of([this](const Part& part) { return forecast(part); },
                              std::min(options_.keep_last.value_or(given), given));
    if (options_.keep_last) {
      estimate_.long_run = held_of([this](const Part& part) { return forecast_long_run(part); }, *options_.keep_last);
    }
    for (const std::uint64_t bytes : read_bytes_) estimate_.read_bytes += bytes;
  }

  const std::vector<EstimateSource>& checkpoints_;
  const EstimateOptions& options_;
  const std::unique_ptr<exec::Executor> executor_;
  CodingSettings settings_;                         // all fields that have defaults have values
  std::uint64_t sample_bytes_ = 0;                  // of each state
  std::size_t opened_ = 0;                          // the checkpoint that stays open for the next pair
  std::vector<MeasuredPair> pairs_;                 // neighbours
  std::vector<std::vector<MeasuredPair>> farther_;  // by distance from 2 on
  std::vector<std::uint64_t> raw_bytes_;            // by checkpoint
  std::vector<std::uint64_t> read_bytes_;  // by checkpoint; what was read again when it was opened again counts again
  std::uint64_t done_bytes_ = 0;
  std::uint64_t planned_bytes_ = 0;
  RunEstimate estimate_;
};

}  // namespace

Result<RunEstimate> estimate_run(const std::vector<EstimateSource>& checkpoints, const EstimateOptions& options) {
  return no_throw("estimating", [&] { return RunEstimator(checkpoints, options).run(); });
}

}  // namespace bitsnap
