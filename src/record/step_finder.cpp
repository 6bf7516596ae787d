// Moments by their names, parameters by theirs or by the way they went.
#include "record/step_finder.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include <bitsnap/tensor.hpp>

#include "record/name_parts.hpp"
#include "restore/read_context.hpp"

namespace bitsnap::record {
namespace {

constexpr std::size_t kSampled = 64;  // elements, side by side

// Of those that moved so many have to be there, and all but one in so many to have moved against the moment.
constexpr std::size_t kFewestMoved = kSampled / 4;
constexpr std::size_t kPerWrong = 8;

// Of first moments of the same size so many are held against a parameter.
constexpr std::size_t kMostCompared = 1024;

using Sampled = std::array<float, kSampled>;

class Finder {
 public:
  Finder(const container::Content& content, const container::StreamTable& streams, const StreamSource& source,
         std::span<const std::optional<BaseStream>> bases)
      : content_(content), streams_(streams.streams), source_(source), bases_(bases), steps_(streams_.size()) {}

  std::vector<std::optional<StepPeers>> find() {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (!streams_[i].tensor || streams_[i].dtype != DType::f32) continue;
      const TensorInfo& tensor = content_.tensors[*streams_[i].tensor];
      OfSize& same_size = by_size_[streams_[i].elements];
      if (is_first_moment(tensor)) {
        same_size.moments.push_back({i, {}});
      } else if (tensor.role == Role::exp_avg_sq) {
        same_size.squares.push_back(i);
      } else if (bases_[i]) {
        same_size.parameters.push_back(i);
      }
    }
    for (auto& [elements, same_size] : by_size_) {
      if (same_size.moments.empty()) continue;
      pair_moments(same_size);
      find_parameters(same_size);
    }
    return std::move(steps_);
  }

 private:
  struct Moments {
    std::size_t first = 0;
    std::optional<std::size_t> second;
  };
  struct OfSize {
    std::vector<Moments> moments;
    std::vector<std::size_t> squares;
    std::vector<std::size_t> parameters;
  };

  [[nodiscard]] const std::string& name_of(std::size_t stream) const {
    return content_.tensors[*streams_[stream].tensor].name;
  }

  static bool is_first_moment(const TensorInfo& tensor) {
    return tensor.role == Role::exp_avg || tensor.name.ends_with("momentum_buffer");
  }

  // By name; of those that have none in common, by their order.
  void pair_moments(OfSize& same_size) {
    std::unordered_map<std::string, std::size_t> by_name;
    for (const std::size_t square : same_size.squares) by_name.emplace(bare_name(name_of(square)), square);
    const bool in_order = same_size.squares.size() == same_size.moments.size();
    for (std::size_t i = 0; i < same_size.moments.size(); ++i) {
      Moments& moments = same_size.moments[i];
      const auto known = by_name.find(bare_name(name_of(moments.first)));
      if (known != by_name.end()) {
        moments.second = known->second;
      } else if (in_order) {
        moments.second = same_size.squares[i];
      }
      if (moments.second && bases_[*moments.second] && bases_[moments.first]) {
        steps_[*moments.second] = StepPeers{.moment = moments.first, .square = {}, .is_square = true};
      }
    }
  }

  void find_parameters(const OfSize& same_size) {
    std::unordered_map<std::string, std::size_t> by_name;
    for (std::size_t i = 0; i < same_size.moments.size(); ++i) {
      by_name.emplace(bare_name(name_of(same_size.moments[i].first)), i);
    }
    for (const std::size_t parameter : same_size.parameters) {
      const auto known = by_name.find(bare_name(name_of(parameter)));
      std::optional<std::size_t> found;
      if (known != by_name.end()) {
        found = known->second;
      } else {
        found = find_by_way(parameter, same_size.moments);
      }
      if (!found) continue;
      const Moments& moments = same_size.moments[*found];
      steps_[parameter] = StepPeers{.moment = moments.first, .square = moments.second, .is_square = false};
    }
  }

  // The first moment that most of a few elements went against.
  std::optional<std::size_t> find_by_way(std::size_t parameter, const std::vector<Moments>& moments) {
    Sampled now;
    Sampled before;
    if (!sample(parameter, now) || !sample_base(parameter, before)) return std::nullopt;
    std::optional<std::size_t> best;
    std::size_t least_wrong = kSampled;
    for (std::size_t i = 0; i < std::min(moments.size(), kMostCompared); ++i) {
      Sampled moment;
      if (!sample(moments[i].first, moment)) continue;
      std::size_t moved = 0;
      std::size_t wrong = 0;
      for (std::size_t k = 0; k < kSampled; ++k) {
        const float change = now[k] - before[k];
        if (change == 0 || moment[k] == 0 || std::isnan(change) || std::isnan(moment[k])) continue;
        ++moved;
        if ((change > 0) == (moment[k] > 0)) ++wrong;
      }
      if (moved < kFewestMoved || wrong * kPerWrong > moved || wrong >= least_wrong) continue;
      best = i;
      least_wrong = wrong;
    }
    return best;
  }

  // From the middle of the first chunk: at the front of embeddings stand tokens that nothing is learnt of.
  [[nodiscard]] std::uint64_t first_sampled(std::size_t stream) const {
    return std::min(streams_[stream].elements, kChunkElements) / 2;
  }

  bool sample(std::size_t stream, Sampled& out) {
    if (streams_[stream].elements < 2 * kSampled || !source_.can_be_sampled(stream)) return false;
    context_.restart();
    return source_.read(stream, first_sampled(stream) * sizeof(float), std::as_writable_bytes(std::span(out)), context_)
        .has_value();
  }

  bool sample_base(std::size_t stream, Sampled& out) {
    const BaseStream& base = *bases_[stream];
    context_.restart();
    return base.base
        ->read_elements(base.stream, first_sampled(stream), std::as_writable_bytes(std::span(out)), context_)
        .has_value();
  }

  const container::Content& content_;
  const std::vector<StreamInfo>& streams_;
  const StreamSource& source_;
  const std::span<const std::optional<BaseStream>> bases_;
  ReadContext context_;
  std::map<std::uint64_t, OfSize> by_size_;
  std::vector<std::optional<StepPeers>> steps_;
};

}  // namespace

std::vector<std::optional<StepPeers>> find_steps(const container::Content& content,
                                                 const container::StreamTable& streams, const StreamSource& source,
                                                 std::span<const std::optional<BaseStream>> bases) {
  return Finder(content, streams, source, bases).find();
}

}  // namespace bitsnap::record
