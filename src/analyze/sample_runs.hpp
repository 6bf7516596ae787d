// Which elements of a state are looked at: runs of elements, each within one chunk. Places depend on the sizes and the
// order of the tensors alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <bitsnap/analysis.hpp>

namespace bitsnap::analyze {

struct SampleRun {
  std::size_t tensor = 0;
  std::uint64_t first = 0;  // element
  std::size_t elements = 0;
  bool is_coded = true;  // by codecs, baselines and quantizers; otherwise its elements are only counted
};

// Elements that are sampled of every tensor that has them, however small the sample is.
inline constexpr std::uint64_t kLeastElements = std::uint64_t{1} << 14;

// The most elements of a run that is not a whole chunk: long enough that the tables of codecs pay off.
inline constexpr std::uint64_t kRunElements = std::uint64_t{1} << 17;

// Of the small tensors of one role and dtype, those of at most kLeastElements elements, about this many elements are
// coded if the sample is limited. Coding takes a hundred times as long as counting, and similar tensors give similar
// sizes.
inline constexpr std::uint64_t kCodedSmallElements = std::uint64_t{1} << 17;

// Runs with about `wanted` of the `elements` of a tensor, spread evenly.
[[nodiscard]] std::vector<SampleRun> spread_runs(std::size_t tensor, std::uint64_t elements, std::uint64_t wanted);

// For all tensors of kind `analyzed`, in order; the sample has the same share of each. `codes_all`: none is only
// counted.
[[nodiscard]] std::vector<SampleRun> sample_runs(std::span<const TensorInfo> tensors,
                                                 std::span<const TensorAnalysis> kinds, std::uint64_t sample_bytes,
                                                 bool codes_all);

}  // namespace bitsnap::analyze
