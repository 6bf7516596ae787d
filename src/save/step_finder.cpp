// Matches moments by name or order, and parameters by name or by what their last step did.
#include "save/step_finder.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

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

// Elements of a stream as they are stored; empty if the stream cannot be sampled.
using Sample = std::vector<std::byte>;

bool is_of_steps(DType dtype) noexcept { return dtype == DType::f32 || dtype == DType::bf16; }

// Precondition: is_of_steps(dtype).
float element_at(const Sample& sample, DType dtype, std::size_t i) noexcept {
  const std::byte* const at = sample.data() + i * element_size(dtype);
  const std::uint32_t bits =
      dtype == DType::f32 ? load_le<std::uint32_t>(at) : static_cast<std::uint32_t>(load_le<std::uint16_t>(at)) << 16;
  return std::bit_cast<float>(bits);
}

// Frameworks put the word before or after the name of the parameter.
bool is_momentum(std::string_view name) noexcept { return name.find("momentum_buffer") != std::string_view::npos; }

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
      if (!streams_[i].tensor || !is_of_steps(streams_[i].dtype)) continue;
      const TensorInfo& tensor = content_.tensors[*streams_[i].tensor];
      OfSize& same_size = by_size_[{streams_[i].dtype, streams_[i].elements}];
      if (tensor.role == Role::exp_avg || is_momentum(tensor.name)) {
        same_size.moments.push_back({.first = i, .second = {}, .largest = {}});
      } else if (tensor.name.ends_with("max_exp_avg_sq")) {
        same_size.largest.emplace(tensor::bare_name(tensor.name), i);
      } else if (tensor.role == Role::exp_avg_sq) {
        same_size.second_moments.push_back(i);
      } else if (bases_[i]) {
        (tensor::name_of_averaged(tensor.name) ? same_size.averages : same_size.parameters).push_back(i);
      }
    }
    for (auto& [dtype_and_elements, same_size] : by_size_) {
      find_averages(same_size);
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
    std::vector<std::size_t> averages;
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
        steps_[*moments.second] = StepPeers{.stepped = Stepped::second_moment, .moment = moments.first, .square = {}};
      }
    }
  }

  // An average of weights follows from itself before the step and the weights after it. Matched by name. A layer may
  // have the same word in its name: without weights to be an average of, or with moments, it is a parameter.
  void find_averages(OfSize& same_size) {
    if (same_size.averages.empty()) return;
    std::unordered_map<std::string, std::size_t> by_name;
    for (const std::size_t parameter : same_size.parameters) {
      by_name.emplace(tensor::bare_name(name_of(parameter)), parameter);
    }
    std::unordered_set<std::string> with_moments;
    for (const Moments& moments : same_size.moments) with_moments.insert(tensor::bare_name(name_of(moments.first)));
    for (const std::size_t average : same_size.averages) {
      const auto known = by_name.find(*tensor::name_of_averaged(name_of(average)));
      if (known == by_name.end() || with_moments.contains(tensor::bare_name(name_of(average)))) {
        same_size.parameters.push_back(average);
      } else if (streams_[average].dtype == DType::f32 && !bases_are_later_) {
        steps_[average] = StepPeers{.stepped = Stepped::average, .moment = known->second, .square = {}};
      }
    }
    std::ranges::sort(same_size.parameters);
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
      const std::optional<std::size_t> found = is_certain ? named : find_by_sample(parameter, k, named, same_size);
      if (!found) continue;
      const Moments& moments = same_size.moments[*found];
      if (bases_are_later_ && !have_bases(moments)) continue;
      steps_[parameter] = StepPeers{.moment = moments.first, .square = square_of(moments)};
    }
  }

  [[nodiscard]] bool have_bases(const Moments& moments) const {
    const std::optional<std::size_t> square = square_of(moments);
    return bases_[moments.first] && (!square || bases_[*square]);
  }

  [[nodiscard]] DType dtype_of(const Moments& moments) const { return streams_[moments.first].dtype; }

  static std::optional<std::size_t> square_of(const Moments& moments) {
    return moments.largest ? moments.largest : moments.second;
  }

  // The moments that explain a sample of the parameter: those with its name, else those at its place in the order, else
  // others against which it moved. If it cannot be sampled, those with its name. If a BF16 parameter moved too little
  // to say anything, those with its name or at its place.
  std::optional<std::size_t> find_by_sample(std::size_t parameter, std::size_t place, std::optional<std::size_t> named,
                                            OfSize& same_size) {
    std::vector<Moments>& all = same_size.moments;
    std::optional<std::size_t> at_same_place;
    if (all.size() == same_size.parameters.size()) at_same_place = place;
    const Sample now = sample(parameter);
    const Sample before = now.empty() ? Sample() : sample_base(parameter);
    if (before.empty()) return named;
    if (hardly_moved(parameter, now, before)) return named ? named : at_same_place;
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
      std::vector<float> sizes;
      for (std::size_t k = 0; !moments.sample.empty() && k < kMovedRuns.total(); ++k) {
        const float element = element_at(moments.sample, dtype_of(moments), k);
        sizes.push_back(std::isnan(element) ? 0 : std::abs(element));
      }
      if (!sizes.empty()) {
        const auto two_thirds = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() * 2 / 3);
        std::ranges::nth_element(sizes, two_thirds);
        moments.large = *two_thirds;
      }
    }
    return moments.sample;
  }

  [[nodiscard]] bool hardly_moved(std::size_t parameter, const Sample& now, const Sample& before) const {
    const DType dtype = streams_[parameter].dtype;
    if (dtype == DType::f32) return false;
    std::size_t moved = 0;
    for (std::size_t k = 0; k < kMovedRuns.total(); ++k) {
      moved += element_at(now, dtype, k) != element_at(before, dtype, k) ? 1U : 0U;
    }
    return moved < kFewestMoved;
  }

  // The quick test: an optimizer moves parameters against their first moments. All elements of BF16 count, because
  // rounding kept most others where they are.
  bool moved_against(Moments& moments, const Sample& now, const Sample& before) {
    const Sample& moment = sample_of_first(moments);
    std::size_t moved = 0;
    std::size_t wrong = 0;
    const DType dtype = dtype_of(moments);
    for (std::size_t k = 0; !moment.empty() && k < kMovedRuns.total(); ++k) {
      const float change = element_at(now, dtype, k) - element_at(before, dtype, k);
      const float direction = element_at(moment, dtype, k);
      if (dtype == DType::f32 && !(std::abs(direction) >= moments.large)) continue;
      if (std::isnan(direction) || direction == 0 || change == 0 || std::isnan(change)) continue;
      ++moved;
      if ((change > 0) == ((direction > 0) != bases_are_later_)) ++wrong;
    }
    return moved >= kFewestMoved && wrong * kMovedPerWrong <= moved;
  }

  // Whether the codec computes most of the sample from the moments.
  bool explains(Moments& moments, const Sample& now, const Sample& before) {
    const Sample& moment = sample_of_first(moments);
    if (moment.empty()) return false;
    Sample square;
    const DType dtype = dtype_of(moments);
    const auto kind = bases_are_later_ ? codec::InputKind::base : codec::InputKind::peer;
    std::vector<codec::Input> inputs{{codec::InputKind::base, dtype, before}, {kind, dtype, moment}};
    if (const auto stream = square_of(moments)) {
      square = sample_after(*stream);
      if (square.empty()) return false;
      inputs.push_back({kind, dtype, square});
    }
    const auto by_step = payload_bytes(codec::CodecId::optimizer_step, now, dtype, inputs);
    if (!by_step || *by_step * kLeastShrinking > now.size()) return false;
    if (dtype == DType::f32) return true;
    // Most elements of BF16 do not move in a step, so that all moments leave little.
    const auto by_base = payload_bytes(codec::CodecId::ordinal_delta, now, dtype, std::span(inputs).first(1));
    return !by_base || *by_step < *by_base;
  }

  std::optional<std::size_t> payload_bytes(codec::CodecId id, const Sample& now, DType dtype,
                                           std::span<const codec::Input> inputs) {
    const codec::EncodeContext context{{dtype, kMovedRuns.total(), inputs}};
    context_.scratch().reset();
    const auto estimate = codec::find_encoder(id)->analyze(now, context, kMovedRuns.total(), context_.scratch());
    return estimate && *estimate ? std::optional((*estimate)->payload_bytes) : std::nullopt;
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
    const std::size_t run_bytes = kMovedRuns.elements * element_size(streams_[stream].dtype);
    Sample all(kMovedRuns.count * run_bytes);
    for (std::size_t run = 0; run < kMovedRuns.count; ++run) {
      const ByteSpan out = ByteSpan(all).subspan(run * run_bytes, run_bytes);
      if (!read(first_of_run(run, streams_[stream].elements), out)) return {};
    }
    return all;
  }

  Sample sample(std::size_t stream) {
    if (streams_[stream].elements < kMovedRuns.total() || !source_.can_be_sampled(stream)) return {};
    const std::size_t element_bytes = element_size(streams_[stream].dtype);
    return gather(stream, [&](std::size_t first, ByteSpan out) {
      context_.restart();
      return source_.read(stream, first * element_bytes, out, context_).has_value();
    });
  }

  // Precondition: the stream is large enough for a sample.
  Sample sample_base(std::size_t stream) {
    const BaseStream& base = *bases_[stream];
    Sample in_memory = gather(
        stream, [&](std::size_t first, ByteSpan out) { return base.base->sample_elements(base.stream, first, out); });
    if (!in_memory.empty()) return in_memory;
    const std::size_t element_bytes = element_size(streams_[stream].dtype);
    Sample chunk(static_cast<std::size_t>(std::min(streams_[stream].elements, kChunkElements)) * element_bytes);
    context_.restart();
    if (!base.base->read_elements(base.stream, 0, chunk, context_)) return {};
    return gather(stream, [&](std::size_t first, ByteSpan out) {
      std::memcpy(out.data(), chunk.data() + first * element_bytes, out.size());
      return true;
    });
  }

  const container::Content& content_;
  const std::vector<StreamInfo>& streams_;
  const StreamSource& source_;
  const std::span<const std::optional<BaseStream>> bases_;
  const bool bases_are_later_;
  ReadContext context_;
  std::map<std::pair<DType, std::uint64_t>, OfSize> by_size_;
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
