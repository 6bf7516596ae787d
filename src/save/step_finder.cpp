// Matches moments by name or order, and parameters by name or by what their last step did.
#include "save/step_finder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include <bitsnap/tensor.hpp>

#include "base/spread_runs.hpp"
#include "codec/registry_encode.hpp"
#include "restore/read_context.hpp"
#include "tensor/name_parts.hpp"

namespace bitsnap::save {
namespace {

// A sample: runs of elements, spread over the first chunk, whose base must be decoded in any case. Many runs, because
// only some rows of an embedding change in a step.
constexpr SpreadRuns kMovedRuns{.count = 64, .elements = 16};

// A quick test before the codec is tried: among elements with large moments, at least kFewestMoved must have moved, and
// at most one in kMovedPerWrong in the direction of the moment.
constexpr std::size_t kFewestMoved = 16;
constexpr std::size_t kMovedPerWrong = 4;

// Moments explain a parameter if the codec shrinks the sample at least this many times.
constexpr std::size_t kLeastShrinking = 2;

// The most first moments of the same size that are compared with a parameter, nearest in order first.
constexpr std::size_t kMostCompared = 1024;

// Empty if the stream cannot be sampled.
using Sample = std::vector<float>;

class StepPeersFinder {
 public:
  StepPeersFinder(const container::Content& content, const container::StreamTable& streams, const StreamSource& source,
                  std::span<const std::optional<BaseStream>> bases, bool bases_are_later)
      : content_(content),
        streams_(streams.streams),
        source_(source),
        bases_(bases),
        bases_are_later_(bases_are_later),
        steps_(streams_.size()) {}

  std::vector<std::optional<StepPeers>> find() {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (!streams_[i].tensor || streams_[i].dtype != DType::f32) continue;
      const TensorInfo& tensor = content_.tensors[*streams_[i].tensor];
      OfSize& same_size = by_size_[streams_[i].elements];
      if (tensor.role == Role::exp_avg || tensor.name.ends_with("momentum_buffer")) {
        same_size.moments.push_back({.first = i, .second = {}, .largest = {}});
      } else if (tensor.name.ends_with("max_exp_avg_sq")) {
        same_size.largest.emplace(tensor::bare_name(tensor.name), i);
      } else if (tensor.role == Role::exp_avg_sq) {
        same_size.second_moments.push_back(i);
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
    std::optional<std::size_t> largest;  // of AMSGrad: the largest second moments, which parameters are divided by
    bool sampled = false;
    Sample sample = {};  // of the first moment
    float large = 0;     // a third of the sample has at least this magnitude
  };
  struct OfSize {
    std::vector<Moments> moments;
    std::vector<std::size_t> second_moments;
    std::unordered_map<std::string, std::size_t> largest;  // by name
    std::vector<std::size_t> parameters;
  };

  [[nodiscard]] const std::string& name_of(std::size_t stream) const {
    return content_.tensors[*streams_[stream].tensor].name;
  }

  // By name. If a name matches none and there are as many second as first moments, by order.
  void pair_moments(OfSize& same_size) {
    std::unordered_map<std::string, std::size_t> by_name;
    for (const std::size_t square : same_size.second_moments)
      by_name.emplace(tensor::without_moment(name_of(square)), square);
    const bool in_order = same_size.second_moments.size() == same_size.moments.size();
    for (std::size_t i = 0; i < same_size.moments.size(); ++i) {
      Moments& moments = same_size.moments[i];
      const std::string name = tensor::without_moment(name_of(moments.first));
      if (const auto known = by_name.find(name); known != by_name.end()) {
        moments.second = known->second;
      } else if (in_order) {
        moments.second = same_size.second_moments[i];
      }
      const auto largest = same_size.largest.find(name);
      if (largest != same_size.largest.end()) moments.largest = largest->second;
      if (moments.second && bases_[*moments.second] && bases_[moments.first]) {
        steps_[*moments.second] = StepPeers{.moment = moments.first, .square = {}, .is_square = true};
      }
    }
  }

  void find_parameters(OfSize& same_size) {
    std::unordered_map<std::string, std::size_t> by_name;
    for (std::size_t i = 0; i < same_size.moments.size(); ++i) {
      by_name.emplace(tensor::bare_name(name_of(same_size.moments[i].first)), i);
    }
    for (std::size_t k = 0; k < same_size.parameters.size(); ++k) {
      const std::size_t parameter = same_size.parameters[k];
      const std::string name = tensor::bare_name(name_of(parameter));
      const auto known = by_name.find(name);
      std::optional<std::size_t> named;
      if (known != by_name.end()) named = known->second;
      // Numeric names are numbers in some order, which may differ between parameters and moments.
      const bool is_certain = named && name.find_first_not_of("0123456789.") != std::string::npos;
      const std::optional<std::size_t> found =
          is_certain ? named : find_by_sample(parameter, k, named, same_size.moments);
      if (!found) continue;
      const Moments& moments = same_size.moments[*found];
      if (bases_are_later_ && !have_bases(moments)) continue;
      steps_[parameter] = StepPeers{.moment = moments.first, .square = square_of(moments), .is_square = false};
    }
  }

  [[nodiscard]] bool have_bases(const Moments& moments) const {
    const std::optional<std::size_t> square = square_of(moments);
    return bases_[moments.first] && (!square || bases_[*square]);
  }

  static std::optional<std::size_t> square_of(const Moments& moments) {
    return moments.largest ? moments.largest : moments.second;
  }

  // The moments that explain a sample of the parameter: those with its name, else those at its place in the order, else
  // others against which it moved. If it cannot be sampled, those with its name.
  std::optional<std::size_t> find_by_sample(std::size_t parameter, std::size_t place, std::optional<std::size_t> named,
                                            std::vector<Moments>& all) {
    const Sample now = sample(parameter);
    const Sample before = now.empty() ? Sample() : sample_base(parameter);
    if (before.empty()) return named;
    if (named && explains(all[*named], now, before)) return named;
    const std::size_t middle = std::min(place, all.size() - 1);
    // The nearest places first, alternating between both sides.
    for (std::size_t k = 0; k < std::min(2 * all.size(), kMostCompared); ++k) {
      const std::size_t distance = (k + 1) / 2;
      const bool is_behind = k % 2 == 1;
      if (is_behind ? distance >= all.size() - middle : distance > middle) continue;
      const std::size_t i = is_behind ? middle + distance : middle - distance;
      if (i == named || (k > 0 && !moved_against(all[i], now, before))) continue;
      if (explains(all[i], now, before)) return i;
    }
    return std::nullopt;
  }

  const Sample& sample_of_first(Moments& moments) {
    if (!moments.sampled) {
      moments.sampled = true;
      moments.sample = sample_after(moments.first);
      Sample sizes = moments.sample;
      for (float& size : sizes) size = std::isnan(size) ? 0 : std::abs(size);
      if (!sizes.empty()) {
        const auto two_thirds = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() * 2 / 3);
        std::ranges::nth_element(sizes, two_thirds);
        moments.large = *two_thirds;
      }
    }
    return moments.sample;
  }

  // The quick test: an optimizer moves parameters against their first moments.
  bool moved_against(Moments& moments, const Sample& now, const Sample& before) {
    const Sample& moment = sample_of_first(moments);
    std::size_t moved = 0;
    std::size_t wrong = 0;
    for (std::size_t k = 0; k < moment.size(); ++k) {
      const float change = now[k] - before[k];
      if (!(std::abs(moment[k]) >= moments.large) || moment[k] == 0 || change == 0 || std::isnan(change)) continue;
      ++moved;
      if ((change > 0) == ((moment[k] > 0) != bases_are_later_)) ++wrong;
    }
    return moved >= kFewestMoved && wrong * kMovedPerWrong <= moved;
  }

  // Whether the codec computes most of the sample from the moments.
  bool explains(Moments& moments, const Sample& now, const Sample& before) {
    const Sample& moment = sample_of_first(moments);
    if (moment.empty()) return false;
    Sample square;
    const auto kind = bases_are_later_ ? codec::InputKind::base : codec::InputKind::peer;
    std::vector<codec::Input> inputs{{codec::InputKind::base, DType::f32, std::as_bytes(std::span(before))},
                                     {kind, DType::f32, std::as_bytes(std::span(moment))}};
    if (const auto stream = square_of(moments)) {
      square = sample_after(*stream);
      if (square.empty()) return false;
      inputs.push_back({kind, DType::f32, std::as_bytes(std::span(square))});
    }
    const ConstByteSpan bytes = std::as_bytes(std::span(now));
    const codec::EncodeContext context{{DType::f32, now.size(), inputs}};
    const codec::Encoder& encoder = *codec::find_encoder(codec::CodecId::optimizer_step);
    context_.scratch().reset();
    const auto estimate = encoder.analyze(bytes, context, now.size(), context_.scratch());
    return estimate && *estimate && (*estimate)->payload_bytes * kLeastShrinking <= bytes.size();
  }

  [[nodiscard]] static std::size_t first_of_run(std::size_t run, std::uint64_t elements) noexcept {
    return kMovedRuns.start(run, static_cast<std::size_t>(std::min(elements, kChunkElements)));
  }

  // Of the state after the step.
  Sample sample_after(std::size_t stream) {
    if (!bases_are_later_) return sample(stream);
    return bases_[stream] ? sample_base(stream) : Sample();
  }

  // Empty if `read`, which gets the first element of a run and fills the run, returns false.
  template <typename Read>
  [[nodiscard]] Sample gather(std::size_t stream, const Read& read) const {
    Sample all(kMovedRuns.total());
    for (std::size_t run = 0; run < kMovedRuns.count; ++run) {
      const std::span<float> out = std::span(all).subspan(run * kMovedRuns.elements, kMovedRuns.elements);
      if (!read(first_of_run(run, streams_[stream].elements), std::as_writable_bytes(out))) return {};
    }
    return all;
  }

  Sample sample(std::size_t stream) {
    if (streams_[stream].elements < kMovedRuns.total() || !source_.can_be_sampled(stream)) return {};
    return gather(stream, [&](std::size_t first, ByteSpan out) {
      context_.restart();
      return source_.read(stream, first * sizeof(float), out, context_).has_value();
    });
  }

  // Precondition: the stream is large enough for a sample.
  Sample sample_base(std::size_t stream) {
    const BaseStream& base = *bases_[stream];
    Sample in_memory = gather(
        stream, [&](std::size_t first, ByteSpan out) { return base.base->sample_elements(base.stream, first, out); });
    if (!in_memory.empty()) return in_memory;
    Sample chunk(static_cast<std::size_t>(std::min(streams_[stream].elements, kChunkElements)));
    context_.restart();
    if (!base.base->read_elements(base.stream, 0, std::as_writable_bytes(std::span(chunk)), context_)) return {};
    return gather(stream, [&](std::size_t first, ByteSpan out) {
      std::memcpy(out.data(), chunk.data() + first, out.size());
      return true;
    });
  }

  const container::Content& content_;
  const std::vector<StreamInfo>& streams_;
  const StreamSource& source_;
  const std::span<const std::optional<BaseStream>> bases_;
  const bool bases_are_later_;
  ReadContext context_;
  std::map<std::uint64_t, OfSize> by_size_;
  std::vector<std::optional<StepPeers>> steps_;
};

}  // namespace

std::vector<std::optional<StepPeers>> find_steps(const container::Content& content,
                                                 const container::StreamTable& streams, const StreamSource& source,
                                                 std::span<const std::optional<BaseStream>> bases,
                                                 bool bases_are_later) {
  return StepPeersFinder(content, streams, source, bases, bases_are_later).find();
}

}  // namespace bitsnap::save
