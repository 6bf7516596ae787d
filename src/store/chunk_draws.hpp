// Which chunks of a state are sampled, and what follows for the whole state. Pure functions.
//
// Chunks of one role and dtype are a stratum. In each, as many bytes are drawn as it has of the state's bytes: one
// place in each of equal intervals of its bytes, and the chunk at this place. The mean over the draws of a stratum is
// then a mean over its bytes. The draws of each stratum belong to subsamples in turn; how far the results of these
// differ says how far the result of all may be off. Strata of the same size are drawn at the same places, because a
// chunk is often coded against those of other roles there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace bitsnap::store {

inline constexpr std::size_t kSubsamples = 16;

// A share of the raw bytes, from all draws and from those of each subsample.
struct SampledShare {
  double all = 0;
  std::array<double, kSubsamples> subsamples = {};
};

struct SampledUnit {
  std::uint64_t bytes = 0;
  std::uint32_t stratum = 0;
};

class ChunkDraws {
 public:
  // Draws about `sample_bytes` of the chunks, and at least kSubsamples of each stratum; smaller strata as a whole.
  // Other seeds give other places. The chunks of a stratum are passed in the order of `chunks`.
  ChunkDraws(std::span<const SampledUnit> chunks, std::uint64_t sample_bytes, std::uint64_t seed);

  // Their numbers, each once, ascending.
  [[nodiscard]] const std::vector<std::size_t>& numbers() const noexcept { return numbers_; }
  // From the shares of the drawn chunks, in the order of numbers().
  [[nodiscard]] SampledShare share(std::span<const double> shares) const;

 private:
  struct Stratum {
    double weight = 0;               // its part of the state's bytes
    bool is_whole = false;           // each chunk is drawn once
    std::vector<std::size_t> draws;  // indices into numbers_, repeated as drawn
    std::vector<double> weights;     // if it is whole: of each draw, together 1
  };
  std::vector<std::size_t> numbers_;
  std::vector<Stratum> strata_;
};

// Half the width of the 95 % interval of a mean of independent results; 0 for fewer than two.
[[nodiscard]] double error_of_mean(std::span<const double> results);

}  // namespace bitsnap::store
