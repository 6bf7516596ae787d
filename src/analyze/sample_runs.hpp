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
};

// Elements of a tensor that are looked at however small the sample is, if it has as many.
inline constexpr std::uint64_t kLeastElements = std::uint64_t{1} << 14;

// Elements of a run that is not a whole chunk, at most: long enough for codecs, whose tables have to pay.
inline constexpr std::uint64_t kRunElements = std::uint64_t{1} << 17;

// For a tensor of so many elements, of which about `wanted` are to be looked at: runs spread evenly over it.
[[nodiscard]] std::vector<SampleRun> spread_runs(std::size_t tensor, std::uint64_t elements, std::uint64_t wanted);

// For all tensors of kind `analyzed`, in their order; each gives the same share of its bytes.
[[nodiscard]] std::vector<SampleRun> sample_runs(std::span<const TensorInfo> tensors,
                                                 std::span<const TensorAnalysis> kinds, std::uint64_t sample_bytes);

}  // namespace bitsnap::analyze
