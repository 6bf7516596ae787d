// Rules, aliases and Adam's values decide the quantizer of each stream; clusters are fitted to their tensors.
#include "save/stream_losses.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "container/chunk_table.hpp"
#include "quantize/clusters.hpp"
#include "quantize/loss_rules.hpp"
#include "quantize/round_mantissa.hpp"
#include "quantize/update_step.hpp"
#include "tensor/name_parts.hpp"

namespace bitsnap::save {
namespace {

std::optional<double> finite(double number) noexcept {
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

// Checks Adam's values even if no rule needs them: the file stores them, and errors are measured with them.
Result<void> check_adam_of_all(const State& state, const SaveOptions& options) {
  if (options.adam) BITSNAP_TRY(quantize::check_adam(*options.adam));
  for (const TensorSource& tensor : state.tensors) {
    if (!tensor.adam) continue;
    if (auto checked = quantize::check_adam(*tensor.adam); !checked) {
      return tl::unexpected(std::move(checked).error().within(quote_tensor(tensor.info.name)));
    }
  }
  return {};
}

class LossPlanner {
 public:
  LossPlanner(const State& state, const SaveOptions& options, const container::Content& content,
              const container::StreamTable& streams, const StreamSource& source,
              std::span<const std::optional<PeerStream>> masters, exec::Executor& executor)
      : state_(state),
        options_(options),
        rules_(options.settings.loss.value_or(std::vector<LossRule>())),
        preset_(quantize::preset_rules(*options.settings.policy)),
        content_(content),
        streams_(streams),
        source_(source),
        executor_(executor),
        losses_(streams.streams.size()),
        masters_(masters.begin(), masters.end()) {}

  Result<std::vector<StreamLoss>> plan() {
    for (const LossRule& rule : rules_) {
      if (auto checked = quantize::check_rule(rule); !checked) {
        return tl::unexpected(std::move(checked).error().within(fmt::format("rule {}", format_loss_rule(rule))));
      }
    }
    BITSNAP_TRY(check_adam_of_all(state_, options_));
    if (rules_.empty() && preset_.empty()) return std::move(losses_);
    aliases_.resize(content_.tensors.size());
    for (std::size_t i = 0; i < content_.tensors.size(); ++i) {
      if (const auto& target = content_.tensors[i].alias_of) aliases_[*target].push_back(i);
    }
    second_moments_ = second_moments_of(content_, streams_);
    std::vector<std::pair<std::size_t, const LossRule*>> first_moments;  // planned after their second moments
    for (std::size_t i = 0; i < losses_.size(); ++i) {
      const auto& tensor = streams_.streams[i].tensor;
      if (!tensor) continue;
      const LossRule* const rule = agreed_rule(*tensor);
      if (rule == nullptr || rule->quantization == Quantization::exact) continue;
      if (rule->quantization == Quantization::update_step) {
        first_moments.emplace_back(i, rule);
      } else {
        BITSNAP_TRY(plan_stream(i, *rule));
      }
    }
    for (const auto& [stream, rule] : first_moments) BITSNAP_TRY(plan_stream(stream, *rule));
    return std::move(losses_);
  }

 private:
  [[nodiscard]] std::size_t tensor_of(std::size_t stream) const { return *streams_.streams[stream].tensor; }

  // Tied tensors are quantized only if all of them may be, in the same way.
  [[nodiscard]] const LossRule* agreed_rule(std::size_t tensor) const noexcept {
    const TensorInfo& info = content_.tensors[tensor];
    const LossRule* const rule = quantize::find_rule(info.role, info.name, rules_, preset_);
    if (rule == nullptr) return nullptr;
    const auto agrees = [&](std::size_t alias) {
      const TensorInfo& other = content_.tensors[alias];
      const LossRule* const own = quantize::find_rule(other.role, other.name, rules_, preset_);
      if (own == nullptr || other.dtype != info.dtype) return false;
      if (rule->quantization == Quantization::update_step && other.role != info.role) return false;
      return own->quantization == rule->quantization && own->amount == rule->amount;
    };
    return std::ranges::all_of(aliases_[tensor], agrees) ? rule : nullptr;
  }

  Result<void> plan_stream(std::size_t stream, const LossRule& rule) {
    const DType dtype = streams_.streams[stream].dtype;
    const auto bits = static_cast<unsigned>(rule.amount);
    StreamLoss& loss = losses_[stream];
    LossReport& report = loss.report;
    report.quantization = rule.quantization;
    report.amount = rule.amount;
    if (content_.tensors[tensor_of(stream)].role == Role::exp_avg) {
      const auto& own = state_.tensors[tensor_of(stream)].adam;
      report.adam = own ? own : options_.adam;
      loss.second_moments = second_moments_[stream];
    }
    switch (rule.quantization) {
      case Quantization::exact: return {};
      case Quantization::mantissa_bits: {
        if (bits >= quantize::RoundMantissa::mantissa_bits(dtype)) return {};
        BITSNAP_ASSIGN(const auto made, quantize::RoundMantissa::of(dtype, bits));
        report.bound = made.bound();
        loss.quantizer = std::make_unique<quantize::RoundMantissa>(made);
        break;
      }
      case Quantization::master_bits: {
        const DType weights = dtype_of_weights(stream);
        constexpr unsigned kMasterBits = 23;
        if (dtype != DType::f32 || quantize::RoundMantissa::mantissa_bits(weights) + bits >= kMasterBits) return {};
        BITSNAP_ASSIGN(const auto made, quantize::RoundMantissa::of_master(weights, bits));
        report.bound = made.bound();
        loss.quantizer = std::make_unique<quantize::RoundMantissa>(made);
        break;
      }
      case Quantization::clusters:
        if (dtype != DType::f32) return {};
        return fit(stream, rule);
      case Quantization::update_step:
        if (dtype != DType::f32 || !loss.second_moments) return {};
        return plan_update_step(stream, rule);
    }
    return {};
  }

  // The dtype of the weights that a master is rounded to: of the weights that were matched to it, else of weights with
  // its name and size, else of any 16-bit tensor that is not a moment. F16 wins over BF16, because it has more mantissa
  // bits: a master that is precise enough for F16 is precise enough for BF16.
  DType dtype_of_weights(std::size_t master) {
    match_weights_to_masters();
    std::optional<DType> dtype;
    const auto note = [&dtype](DType one) {
      if (one == DType::f16 || (one == DType::bf16 && !dtype)) dtype = one;
    };
    for (std::size_t i = 0; i < masters_.size(); ++i) {
      if (masters_[i] && masters_[i]->stream == master) note(streams_.streams[i].dtype);
    }
    if (dtype) return *dtype;
    const std::size_t tensor = tensor_of(master);
    std::vector<std::string> names{tensor::bare_name(content_.tensors[tensor].name)};
    for (const std::size_t alias : aliases_[tensor]) names.push_back(tensor::bare_name(content_.tensors[alias].name));
    for (const TensorInfo& info : content_.tensors) {
      if (info.role != Role::weight || info.element_count() != streams_.streams[master].elements) continue;
      if (std::ranges::find(names, tensor::bare_name(info.name)) != names.end()) note(info.dtype);
    }
    if (dtype) return *dtype;
    for (const TensorInfo& info : content_.tensors) {
      if (info.role != Role::exp_avg && info.role != Role::exp_avg_sq) note(info.dtype);
    }
    return dtype.value_or(DType::bf16);
  }

  // Matches weights to masters by their bits, before anything is quantized. Without F16 tensors there is nothing to
  // find out: all 16-bit weights are BF16.
  void match_weights_to_masters() {
    if (weights_are_matched_) return;
    weights_are_matched_ = true;
    const auto is_f16 = [](const StreamInfo& stream) { return stream.dtype == DType::f16; };
    if (std::ranges::none_of(streams_.streams, is_f16)) return;
    masters_ = find_peers(content_, streams_, source_, std::move(masters_));
  }

  Result<void> plan_update_step(std::size_t stream, const LossRule& rule) {
    StreamLoss& loss = losses_[stream];
    LossReport& report = loss.report;
    const std::string place = quote_tensor(content_.tensors[tensor_of(stream)].name);
    if (!report.adam) {
      return tl::unexpected(Error(ErrorKind::invalid_argument,
                                  fmt::format("{}: update_step needs Adam's betas, epsilon and step count; the rule "
                                              "exp_avg=exact keeps first moments exact",
                                              place))
                                .with_code(ErrorCode::adam_needed)
                                .about(content_.tensors[tensor_of(stream)].name));
    }
    const AdamNumbers& adam = *report.adam;
    if (adam.step == 0) return {};  // before the first step, moments are kept exact
    auto made = quantize::UpdateStep::of(quantize::parameters_of(adam, rule.amount));
    if (!made) return tl::unexpected(std::move(made).error().within(place));
    loss.multiples = Multiples{made->lattice(), *loss.second_moments};
    const double error = second_moment_error(*loss.second_moments);
    const double later = made->largest_update(adam.step < UINT64_MAX ? adam.step + 1 : adam.step);
    report.bound = finite(made->bound(made->largest_update(), error));
    report.next_update_bound = finite(made->next_bound(later, error));
    report.all_updates_bound = finite(made->cumulative_bound(made->largest_update(quantize::UpdateStep::kEver), error));
    loss.quantizer = std::make_unique<quantize::UpdateStep>(*made);
    return {};
  }

  // The largest relative error of a stored second moment; infinity if there is no bound. A rule of the caller may round
  // second moments with master_bits, too, which takes a value other than the nearest where that keeps the 16-bit
  // rounding: the error is then up to twice the bound.
  [[nodiscard]] double second_moment_error(std::size_t second_moments) const noexcept {
    const StreamLoss& loss = losses_[second_moments];
    if (loss.quantizer == nullptr) return 0;
    switch (loss.report.quantization) {
      case Quantization::mantissa_bits: return *loss.report.bound;
      case Quantization::master_bits: return 2 * *loss.report.bound;
      default: return std::numeric_limits<double>::infinity();
    }
  }

  Result<void> fit(std::size_t stream, const LossRule& rule) {
    const auto first = static_cast<std::size_t>(streams_.first_chunk[stream]);
    const auto chunks = static_cast<std::size_t>(streams_.first_chunk[stream + 1]) - first;
    const std::size_t slots = executor_.default_slots();
    std::vector<ReadContext> contexts(slots);
    const auto read_all = [&](const auto& use) {
      return executor_.run(chunks, slots, [&](std::size_t chunk, std::size_t slot) -> Result<void> {
        ReadContext& context = contexts[slot];
        context.scratch().reset();
        context.restart();
        const auto elements = static_cast<std::size_t>(container::chunk_elements(streams_.streams[stream], chunk));
        BITSNAP_ASSIGN(const ByteSpan bytes, context.scratch().take(elements * sizeof(float)));
        BITSNAP_TRY(source_.read(stream, chunk * kChunkElements * sizeof(float), bytes, context));
        use(chunk, slot, bytes);
        return {};
      });
    };
    std::vector<quantize::ClusterMoments> moments(chunks);
    BITSNAP_TRY(read_all([&](std::size_t chunk, std::size_t, ConstByteSpan bytes) {
      moments[chunk] = quantize::cluster_moments(bytes);
    }));
    const auto labels = rule.amount == 16 ? quantize::ClusterLabels::four_bits : quantize::ClusterLabels::eight_bits;
    std::vector<quantize::ClusterFit> fits(slots, quantize::ClusterFit(labels, moments));
    BITSNAP_TRY(read_all([&](std::size_t, std::size_t slot, ConstByteSpan bytes) { fits[slot].add(bytes); }));
    for (std::size_t i = 1; i < slots; ++i) fits[0].merge(fits[i]);
    auto made = std::make_unique<quantize::Clusters>(fits[0].clusters());
    for (std::size_t label = 0; label < made->cluster_count(); ++label) {
      const quantize::Cluster cluster = made->cluster(label);
      if (cluster.has_numbers) losses_[stream].clusters.push_back({cluster.least, cluster.greatest});
    }
    losses_[stream].report.bound = made->absolute_bound();
    losses_[stream].quantizer = std::move(made);
    return {};
  }

  const State& state_;
  const SaveOptions& options_;
  const std::vector<LossRule> rules_;       // of the caller
  const std::span<const LossRule> preset_;  // of the policy
  const container::Content& content_;
  const container::StreamTable& streams_;
  const StreamSource& source_;
  exec::Executor& executor_;
  std::vector<StreamLoss> losses_;
  std::vector<std::optional<PeerStream>> masters_;  // of weights, by stream
  bool weights_are_matched_ = false;
  std::vector<std::vector<std::size_t>> aliases_;           // by the tensor that they name
  std::vector<std::optional<std::size_t>> second_moments_;  // of first moments, by stream
};

}  // namespace

Result<std::vector<StreamLoss>> plan_losses(const State& state, const SaveOptions& options,
                                            const container::Content& content, const container::StreamTable& streams,
                                            const StreamSource& source,
                                            std::span<const std::optional<PeerStream>> masters,
                                            exec::Executor& executor) {
  return LossPlanner(state, options, content, streams, source, masters, executor).plan();
}

std::vector<std::optional<std::size_t>> second_moments_of(const container::Content& content,
                                                          const container::StreamTable& streams) {
  std::vector<std::optional<std::size_t>> second_moments(streams.streams.size());
  std::unordered_map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < content.tensors.size(); ++i) {
    const TensorInfo& info = content.tensors[i];
    const auto& stream = streams.stream_of[info.alias_of.value_or(i)];
    if (!stream || streams.streams[*stream].dtype != DType::f32) continue;
    if (info.role == Role::exp_avg_sq && !info.name.ends_with("max_exp_avg_sq")) {
      by_name.emplace(tensor::without_moment(info.name), *stream);
    }
  }
  const auto second_moments_by = [&](std::size_t tensor, std::size_t stream) -> std::optional<std::size_t> {
    const auto found = by_name.find(tensor::without_moment(content.tensors[tensor].name));
    if (found == by_name.end() || streams.streams[found->second].elements != streams.streams[stream].elements) {
      return std::nullopt;
    }
    return found->second;
  };
  for (std::size_t i = 0; i < second_moments.size(); ++i) {
    const auto& [dtype, elements, tensor] = streams.streams[i];
    const bool is_first = tensor && dtype == DType::f32 && content.tensors[*tensor].role == Role::exp_avg;
    if (is_first) second_moments[i] = second_moments_by(*tensor, i);
  }
  for (std::size_t i = 0; i < content.tensors.size(); ++i) {
    const auto& holder = content.tensors[i].alias_of;
    const auto stream = holder ? streams.stream_of[*holder] : std::nullopt;
    if (stream && second_moments[*stream] && second_moments_by(i, *stream) != second_moments[*stream])
      second_moments[*stream].reset();
  }
  return second_moments;
}

}  // namespace bitsnap::save
