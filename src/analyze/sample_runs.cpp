// Choosing the runs of a sample, one per chunk.
#include "analyze/sample_runs.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <bitsnap/tensor.hpp>

namespace bitsnap::analyze {
namespace {

// Runs begin at multiples of this many elements.
constexpr std::uint64_t kAlignment = 64;

// Multiples of the golden ratio modulo 1 are spread evenly. Runs begin at different offsets in their chunks because a
// chunk often holds whole rows of a matrix: equal offsets would sample the same columns.
constexpr std::uint32_t kGoldenRatio = 0x9E3779B9;

using SmallGroup = std::pair<Role, std::string_view>;

// The small tensors of one role and dtype. The coded ones are spread evenly over them.
class SmallTensors {
 public:
  void add(std::uint64_t elements) noexcept {
    ++tensors_;
    elements_ += elements;
  }
  [[nodiscard]] bool next_is_coded() noexcept {
    const std::uint64_t coded = tensors_ * std::min(kCodedSmallElements, elements_) / elements_;
    return passed_++ * coded % tensors_ < coded;
  }

 private:
  std::uint64_t tensors_ = 0;
  std::uint64_t elements_ = 0;
  std::uint64_t passed_ = 0;
};

bool is_small(const TensorInfo& tensor, const TensorAnalysis& kind) {
  return kind.kind == TensorAnalysis::Kind::analyzed && tensor.element_count() <= kLeastElements;
}

SmallGroup group_of(const TensorInfo& tensor) { return {tensor.role, tensor.dtype_name}; }

}  // namespace

std::vector<SampleRun> spread_runs(std::size_t tensor, std::uint64_t elements, std::uint64_t wanted) {
  std::vector<SampleRun> runs;
  const std::uint64_t chunks = (elements + kChunkElements - 1) / kChunkElements;
  if (wanted >= elements) {
    for (std::uint64_t first = 0; first < elements; first += kChunkElements) {
      runs.push_back({tensor, first, static_cast<std::size_t>(std::min(kChunkElements, elements - first))});
    }
    return runs;
  }
  const std::uint64_t count = std::clamp<std::uint64_t>((wanted + kRunElements - 1) / kRunElements, 1, chunks);
  const std::uint64_t length = std::min((wanted / count + kAlignment - 1) / kAlignment * kAlignment, kChunkElements);
  for (std::uint64_t run = 0; run < count; ++run) {
    const std::uint64_t begin = (2 * run + 1) * chunks / (2 * count) * kChunkElements;
    const std::uint64_t chunk = std::min(kChunkElements, elements - begin);
    const std::uint64_t taken = std::min(chunk, length);
    const std::uint64_t places = (chunk - taken) / kAlignment + 1;
    const std::uint64_t place = std::uint64_t{static_cast<std::uint32_t>(run) * kGoldenRatio} * places >> 32;
    runs.push_back({tensor, begin + place * kAlignment, static_cast<std::size_t>(taken)});
  }
  return runs;
}

std::vector<SampleRun> sample_runs(std::span<const TensorInfo> tensors, std::span<const TensorAnalysis> kinds,
                                   std::uint64_t sample_bytes, bool codes_all) {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    total += kinds[i].kind == TensorAnalysis::Kind::analyzed ? tensors[i].size_bytes : 0;
  }
  const bool whole = sample_bytes == 0 || sample_bytes >= total;
  const double share = whole ? 1.0 : static_cast<double>(sample_bytes) / static_cast<double>(total);
  std::map<SmallGroup, SmallTensors> groups;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (is_small(tensors[i], kinds[i])) groups[group_of(tensors[i])].add(tensors[i].element_count());
  }
  const auto is_coded = [&](std::size_t i) {
    return whole || codes_all || !is_small(tensors[i], kinds[i]) || groups[group_of(tensors[i])].next_is_coded();
  };
  std::vector<SampleRun> runs;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (kinds[i].kind != TensorAnalysis::Kind::analyzed) continue;
    const bool coded = is_coded(i);
    const std::uint64_t elements = tensors[i].element_count();
    const auto wanted =
        whole ? elements : std::max(kLeastElements, static_cast<std::uint64_t>(share * static_cast<double>(elements)));
    for (SampleRun run : spread_runs(i, elements, wanted)) {
      run.is_coded = coded;
      runs.push_back(run);
    }
  }
  return runs;
}

}  // namespace bitsnap::analyze
