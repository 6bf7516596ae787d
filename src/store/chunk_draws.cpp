// Draws chunks by bytes, at even distances with drawn offsets, and estimates shares from 16 interleaved subsamples.
#include "store/chunk_draws.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace bitsnap::store {
namespace {

// Mixes the bits (SplitMix64), so that places are as if drawn.
std::uint64_t mixed(std::uint64_t value) noexcept {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

// From 0 to below 1.
double drawn(std::uint64_t seed, std::uint64_t number) noexcept {
  return static_cast<double>(mixed(mixed(seed) ^ number) >> 11U) * 0x1.0p-53;
}

// Student's t for 95 %, expanded for large numbers of degrees of freedom; at most 1 % off from 3 on.
double student(double freedom) noexcept {
  if (freedom < 2) return 12.706;
  if (freedom < 3) return 4.303;
  return 1.95996 + 2.37227 / freedom + 2.8225 / (freedom * freedom) + 2.5558 / (freedom * freedom * freedom);
}

}  // namespace

ChunkDraws::ChunkDraws(std::span<const SampledUnit> chunks, std::uint64_t sample_bytes, std::uint64_t seed) {
  std::map<std::uint32_t, std::vector<std::size_t>> members;
  double total = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    members[chunks[i].stratum].push_back(i);
    total += static_cast<double>(chunks[i].bytes);
  }
  for (const auto& entry : members) {
    const std::vector<std::size_t>& numbers = entry.second;
    Stratum& stratum = strata_.emplace_back();
    std::vector<double> ends;  // of the chunks, in bytes of the stratum
    double bytes = 0;
    for (const std::size_t number : numbers) {
      bytes += static_cast<double>(chunks[number].bytes);
      ends.push_back(bytes);
    }
    const auto count = static_cast<double>(numbers.size());
    stratum.weight = bytes / total;
    const double wanted = std::max(static_cast<double>(kSubsamples),
                                   static_cast<double>(sample_bytes) * stratum.weight / (bytes / count));
    stratum.is_whole = wanted >= count;
    if (stratum.is_whole) {
      stratum.draws = numbers;
      for (const std::size_t number : numbers) {
        stratum.weights.push_back(static_cast<double>(chunks[number].bytes) / bytes);
      }
      continue;
    }
    const auto draws = static_cast<std::uint64_t>(wanted);
    for (std::uint64_t i = 0; i < draws; ++i) {
      const double at = (static_cast<double>(i) + drawn(mixed(seed), i)) * bytes / static_cast<double>(draws);
      const auto found = std::ranges::upper_bound(ends, at);
      stratum.draws.push_back(numbers[std::min(static_cast<std::size_t>(found - ends.begin()), numbers.size() - 1)]);
    }
  }
  for (const Stratum& stratum : strata_) numbers_.insert(numbers_.end(), stratum.draws.begin(), stratum.draws.end());
  std::ranges::sort(numbers_);
  numbers_.erase(std::unique(numbers_.begin(), numbers_.end()), numbers_.end());
  for (Stratum& stratum : strata_) {
    for (std::size_t& draw : stratum.draws) {
      draw = static_cast<std::size_t>(std::ranges::lower_bound(numbers_, draw) - numbers_.begin());
    }
  }
}

SampledShare ChunkDraws::share(std::span<const double> shares) const {
  SampledShare result;
  for (const Stratum& stratum : strata_) {
    if (stratum.is_whole) {
      double sum = 0;
      for (std::size_t i = 0; i < stratum.draws.size(); ++i) sum += stratum.weights[i] * shares[stratum.draws[i]];
      result.all += stratum.weight * sum;
      for (double& part : result.subsamples) part += stratum.weight * sum;
      continue;
    }
    std::array<double, kSubsamples> sums = {};
    std::array<double, kSubsamples> counts = {};
    double sum = 0;
    for (std::size_t i = 0; i < stratum.draws.size(); ++i) {
      sums[i % kSubsamples] += shares[stratum.draws[i]];
      counts[i % kSubsamples] += 1;
      sum += shares[stratum.draws[i]];
    }
    result.all += stratum.weight * sum / static_cast<double>(stratum.draws.size());
    for (std::size_t i = 0; i < kSubsamples; ++i) result.subsamples[i] += stratum.weight * sums[i] / counts[i];
  }
  return result;
}

double error_of_mean(std::span<const double> results) {
  if (results.size() < 2) return 0;
  const auto count = static_cast<double>(results.size());
  double mean = 0;
  for (const double each : results) mean += each / count;
  double squares = 0;
  for (const double each : results) squares += (each - mean) * (each - mean);
  return student(count - 1) * std::sqrt(squares / (count - 1) / count);
}

}  // namespace bitsnap::store
