// Who loses what, and reading what is left.
#include "save/quantized_source.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "container/chunk_table.hpp"
#include "container/json_text.hpp"
#include "quantize/clusters.hpp"
#include "quantize/loss_rules.hpp"
#include "quantize/round_mantissa.hpp"
#include "quantize/update_errors.hpp"
#include "quantize/update_step.hpp"
#include "tensor/moment_pairs.hpp"
#include "tensor/name_parts.hpp"

namespace bitsnap::save {
namespace {

std::optional<double> finite(double number) noexcept {
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

// Whether a rule needs them or not: what is said is written, and errors are measured with it.
Result<void> check_numbers_of_adam(const State& state, const SaveOptions& options) {
  if (options.adam) BITSNAP_TRY(quantize::check_adam(*options.adam));
  for (const TensorSource& tensor : state.tensors) {
    if (!tensor.adam) continue;
    if (auto checked = quantize::check_adam(*tensor.adam); !checked) {
      return tl::unexpected(
          std::move(checked).error().within(fmt::format("tensor {}", container::quote_name(tensor.info.name))));
    }
  }
  return {};
}

}  // namespace

Result<void> QuantizedSource::prepare(const State& state, const SaveOptions& options,
                                      std::span<const std::optional<PeerStream>> masters, exec::Executor& executor) {
  const std::vector<LossRule> rules = options.settings.loss.value_or(std::vector<LossRule>());
  for (const LossRule& rule : rules) {
    if (auto checked = quantize::check_rule(rule); !checked) {
      return tl::unexpected(std::move(checked).error().within(fmt::format("rule {}", format_loss_rule(rule))));
    }
  }
  BITSNAP_TRY(check_numbers_of_adam(state, options));
  const auto preset = quantize::preset_rules(*options.settings.policy);
  if (rules.empty() && preset.empty()) return {};
  masters_.assign(masters.begin(), masters.end());
  find_aliases();
  squares_ = pair_moments(content_, streams_);
  std::vector<std::pair<std::size_t, const LossRule*>> first_moments;  // behind what stands beside them
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    const auto& tensor = streams_.streams[i].tensor;
    if (!tensor) continue;
    const LossRule* const rule = agreed_rule(*tensor, rules, preset);
    if (rule == nullptr || rule->quantization == Quantization::exact) continue;
    if (rule->quantization == Quantization::update_step) {
      first_moments.emplace_back(i, rule);
    } else {
      BITSNAP_TRY(prepare_stream(i, *rule, state, options, executor));
    }
  }
  for (const auto& [stream, rule] : first_moments) {
    BITSNAP_TRY(prepare_stream(stream, *rule, state, options, executor));
  }
  return {};
}

void QuantizedSource::find_aliases() {
  for (std::size_t i = 0; i < content_.tensors.size(); ++i) {
    if (const auto& holder = content_.tensors[i].alias_of) aliases_[*holder].push_back(i);
  }
}

std::span<const std::size_t> QuantizedSource::aliases_of(std::size_t tensor) const noexcept {
  const auto known = aliases_.find(tensor);
  return known == aliases_.end() ? std::span<const std::size_t>() : known->second;
}

// Bytes with several names are all that each of them is: what one may not lose, none does.
const LossRule* QuantizedSource::agreed_rule(std::size_t tensor, std::span<const LossRule> rules,
                                             std::span<const LossRule> preset) const noexcept {
  const TensorInfo& info = content_.tensors[tensor];
  const LossRule* const rule = quantize::find_rule(info.role, info.name, rules, preset);
  if (rule == nullptr) return nullptr;
  const auto agrees = [&](std::size_t alias) {
    const TensorInfo& other = content_.tensors[alias];
    const LossRule* const own = quantize::find_rule(other.role, other.name, rules, preset);
    if (own == nullptr || other.dtype != info.dtype) return false;
    if (rule->quantization == Quantization::update_step && other.role != info.role) return false;
    return own->quantization == rule->quantization && own->amount == rule->amount;
  };
  return std::ranges::all_of(aliases_of(tensor), agrees) ? rule : nullptr;
}

// By any of their names; first moments that these put beside different second moments are beside none.
std::vector<std::optional<std::size_t>> pair_moments(const container::Content& content,
                                                     const container::StreamTable& streams) {
  std::vector<std::optional<std::size_t>> squares(streams.streams.size());
  std::unordered_map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < content.tensors.size(); ++i) {
    const TensorInfo& info = content.tensors[i];
    const auto& stream = streams.stream_of[info.alias_of.value_or(i)];
    if (!stream || streams.streams[*stream].dtype != DType::f32) continue;
    if (info.role == Role::exp_avg_sq && !info.name.ends_with("max_exp_avg_sq")) {
      by_name.emplace(tensor::without_moment(info.name), *stream);
    }
  }
  const auto squares_by = [&](std::size_t tensor, std::size_t stream) -> std::optional<std::size_t> {
    const auto found = by_name.find(tensor::without_moment(content.tensors[tensor].name));
    if (found == by_name.end() || streams.streams[found->second].elements != streams.streams[stream].elements) {
      return std::nullopt;
    }
    return found->second;
  };
  for (std::size_t i = 0; i < squares.size(); ++i) {
    const auto& [dtype, elements, tensor] = streams.streams[i];
    const bool is_first = tensor && dtype == DType::f32 && content.tensors[*tensor].role == Role::exp_avg;
    if (is_first) squares[i] = squares_by(*tensor, i);
  }
  for (std::size_t i = 0; i < content.tensors.size(); ++i) {
    const auto& holder = content.tensors[i].alias_of;
    const auto stream = holder ? streams.stream_of[*holder] : std::nullopt;
    if (stream && squares[*stream] && squares_by(i, *stream) != squares[*stream]) squares[*stream].reset();
  }
  return squares;
}

Result<void> QuantizedSource::prepare_stream(std::size_t stream, const LossRule& rule, const State& state,
                                             const SaveOptions& options, exec::Executor& executor) {
  const DType dtype = streams_.streams[stream].dtype;
  const auto bits = static_cast<unsigned>(rule.amount);
  Loss& loss = losses_[stream];
  if (content_.tensors[*streams_.streams[stream].tensor].role == Role::exp_avg) {
    const auto& own = state.tensors[*streams_.streams[stream].tensor].adam;
    loss.adam = own ? own : options.adam;
    loss.squares = squares_[stream];
  }
  switch (rule.quantization) {
    case Quantization::exact: return {};
    case Quantization::mantissa_bits: {
      // Of fewer bits nothing is lost.
      if (bits >= quantize::RoundMantissa::mantissa_bits(dtype)) return {};
      BITSNAP_ASSIGN(const auto made, quantize::RoundMantissa::of(dtype, bits));
      loss.bound = made.bound();
      loss.quantizer = std::make_unique<quantize::RoundMantissa>(made);
      break;
    }
    case Quantization::master_bits: {
      const DType weights = weights_of(stream);
      constexpr unsigned kMasterBits = 23;
      if (dtype != DType::f32 || quantize::RoundMantissa::mantissa_bits(weights) + bits >= kMasterBits) return {};
      BITSNAP_ASSIGN(const auto made, quantize::RoundMantissa::of_master(weights, bits));
      loss.bound = made.bound();
      loss.quantizer = std::make_unique<quantize::RoundMantissa>(made);
      break;
    }
    case Quantization::clusters:
      if (dtype != DType::f32) return {};
      BITSNAP_TRY(fit(stream, rule, executor));
      break;
    case Quantization::update_step:
      if (dtype != DType::f32 || !loss.squares) return {};
      BITSNAP_TRY(prepare_update_step(stream, rule, loss.adam));
      break;
  }
  loss.rule = rule;
  return {};
}

// The weights' dtype is known where they are said or found to be the masters' roundings, else guessed by names, else by
// what there is. Of several the one of more bits: what is near enough for F16 is so for BF16, but not the other way.
DType QuantizedSource::weights_of(std::size_t master) {
  find_weights();
  std::optional<DType> dtype;
  const auto note = [&dtype](DType one) {
    if (one == DType::f16 || (one == DType::bf16 && !dtype)) dtype = one;
  };
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    if (masters_[i] && masters_[i]->stream == master) note(streams_.streams[i].dtype);
  }
  if (dtype) return *dtype;
  const std::size_t tensor = *streams_.streams[master].tensor;
  std::vector<std::string> names{tensor::bare_name(content_.tensors[tensor].name)};
  for (const std::size_t alias : aliases_of(tensor)) names.push_back(tensor::bare_name(content_.tensors[alias].name));
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

// By bits, as they are before anything is lost. Where there is nothing of F16 all weights are of BF16.
void QuantizedSource::find_weights() {
  if (weights_are_found_) return;
  weights_are_found_ = true;
  masters_.resize(streams_.streams.size());
  const auto is_f16 = [](const StreamInfo& stream) { return stream.dtype == DType::f16; };
  if (std::ranges::none_of(streams_.streams, is_f16)) return;
  std::vector<bool> wanted(masters_.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = !masters_[i];
  const auto found = find_peers(content_, streams_, source_, wanted);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!masters_[i]) masters_[i] = found[i];
  }
}

Result<void> QuantizedSource::prepare_update_step(std::size_t stream, const LossRule& rule,
                                                  std::optional<AdamNumbers> adam) {
  Loss& loss = losses_[stream];
  if (!adam) {
    return tl::unexpected(
        Error(ErrorKind::invalid_argument,
              fmt::format("{}: update_step needs Adam's betas, epsilon and step count; the rule "
                          "exp_avg=exact keeps first moments exact",
                          describe(stream)))
            .with_code(ErrorCode::adam_needed)
            .about(content_.tensors[streams_.streams[stream].tensor.value_or(0)].name));
  }
  if (adam->step == 0) return {};  // no step was taken: moments are those that an optimizer begins with
  auto made = quantize::UpdateStep::of(parameters_of(*adam, rule.amount));
  if (!made) return tl::unexpected(std::move(made).error().within(describe(stream)));
  loss.multiples = Multiples{made->lattice(), *loss.squares};
  const double error = square_error(*loss.squares);
  const double later = made->largest_update(adam->step < UINT64_MAX ? adam->step + 1 : adam->step);
  loss.bound = finite(made->bound(made->largest_update(), error));
  loss.next_update_bound = finite(made->next_bound(later, error));
  loss.all_updates_bound = finite(made->cumulative_bound(made->largest_update(quantize::UpdateStep::kEver), error));
  loss.quantizer = std::make_unique<quantize::UpdateStep>(*made);
  return {};
}

// Most that a stored second moment is off, of its magnitude: infinity where nothing bounds that. To keep a weight that
// there is not, numbers may go past the nearest anywhere; by mantissa_bits only next to infinity.
double QuantizedSource::square_error(std::size_t squares) const noexcept {
  const Loss& loss = losses_[squares];
  if (loss.quantizer == nullptr) return 0;
  switch (loss.rule.quantization) {
    case Quantization::mantissa_bits: return *loss.bound;
    case Quantization::master_bits: return 2 * *loss.bound;
    default: return std::numeric_limits<double>::infinity();
  }
}

Result<void> QuantizedSource::fit(std::size_t stream, const LossRule& rule, exec::Executor& executor) {
  const auto first = static_cast<std::size_t>(streams_.first_chunk[stream]);
  const auto chunks = static_cast<std::size_t>(streams_.first_chunk[stream + 1]) - first;
  const std::size_t slots = executor.default_slots();
  std::vector<ReadContext> contexts(slots);
  const auto read_chunk = [&](std::size_t chunk, std::size_t slot) -> Result<ConstByteSpan> {
    ReadContext& context = contexts[slot];
    context.scratch().reset();
    context.restart();
    const std::uint64_t elements = container::chunk_elements(streams_.streams[stream], chunk);
    BITSNAP_ASSIGN(const ByteSpan bytes, context.scratch().take(static_cast<std::size_t>(elements) * sizeof(float)));
    BITSNAP_TRY(source_.read(stream, chunk * kChunkElements * sizeof(float), bytes, context));
    return ConstByteSpan(bytes);
  };
  std::vector<quantize::ClusterMoments> moments(chunks);
  const auto measure = [&](std::size_t chunk, std::size_t slot) -> Result<void> {
    BITSNAP_ASSIGN(const ConstByteSpan bytes, read_chunk(chunk, slot));
    moments[chunk] = quantize::cluster_moments(bytes);
    return {};
  };
  BITSNAP_TRY(executor.run(chunks, slots, measure));
  const auto labels =
      rule.amount == 16 ? quantize::ClusterLabels::four_bits : quantize::ClusterLabels::eight_bits;  // as was checked
  std::vector<quantize::ClusterFit> fits(slots, quantize::ClusterFit(labels, moments));
  const auto extend = [&](std::size_t chunk, std::size_t slot) -> Result<void> {
    BITSNAP_ASSIGN(const ConstByteSpan bytes, read_chunk(chunk, slot));
    fits[slot].add(bytes);
    return {};
  };
  BITSNAP_TRY(executor.run(chunks, slots, extend));
  for (std::size_t i = 1; i < slots; ++i) fits[0].merge(fits[i]);
  auto made = std::make_unique<quantize::Clusters>(fits[0].clusters());
  for (std::size_t label = 0; label < made->cluster_count(); ++label) {
    const quantize::Cluster cluster = made->cluster(label);
    if (cluster.has_numbers) losses_[stream].clusters.push_back({cluster.least, cluster.greatest});
  }
  losses_[stream].bound = made->absolute_bound();
  losses_[stream].quantizer = std::move(made);
  return {};
}

bool QuantizedSource::is_lossy() const noexcept {
  return std::ranges::any_of(losses_, [](const Loss& loss) { return loss.quantizer != nullptr; });
}

std::optional<LossReport> QuantizedSource::promise(std::size_t stream) const {
  const Loss& loss = losses_[stream];
  if (loss.quantizer == nullptr) return std::nullopt;
  return LossReport{.quantization = loss.rule.quantization,
                    .amount = loss.rule.amount,
                    .bound = loss.bound,
                    .adam = loss.adam,
                    .next_update_bound = loss.next_update_bound,
                    .all_updates_bound = loss.all_updates_bound,
                    .reached = {},
                    .updates = {}};
}

std::string QuantizedSource::describe(std::size_t stream) const {
  return fmt::format("tensor {}", container::quote_name(content_.tensors[*streams_.streams[stream].tensor].name));
}

Result<void> QuantizedSource::read(std::size_t stream, std::uint64_t offset, ByteSpan out, ReadContext& context) const {
  BITSNAP_TRY(source_.read(stream, offset, out, context));
  if (losses_[stream].quantizer == nullptr) return {};
  return quantize(stream, offset, out, context, nullptr);
}

Result<void> QuantizedSource::quantize(std::size_t stream, std::uint64_t offset, ByteSpan out, ReadContext& context,
                                       ErrorTally* tally) const {
  const Loss& loss = losses_[stream];
  const DType dtype = streams_.streams[stream].dtype;
  if (!loss.multiples) return loss.quantizer->quantize(dtype, out, {}, tally);
  const Scratch::Frame frame(context.scratch());
  BITSNAP_ASSIGN(const ByteSpan squares, context.scratch().take(out.size()));
  BITSNAP_TRY(read(loss.multiples->squares, offset, squares, context));
  const quantize::Beside beside{.dtype = DType::f32, .bytes = squares};
  return loss.quantizer->quantize(dtype, out, {&beside, 1}, tally);
}

Result<void> QuantizedSource::read_to_store(std::size_t stream, std::uint64_t offset, ByteSpan out,
                                            ReadContext& context, Lost& lost) const {
  const Loss& loss = losses_[stream];
  BITSNAP_TRY(source_.read(stream, offset, out, context));
  if (loss.quantizer == nullptr) return {};
  if (!loss.adam || !loss.squares) return quantize(stream, offset, out, context, &lost.reached);

  // What moments lose is measured by the updates that they make.
  Scratch& scratch = context.scratch();
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const ByteSpan moments, scratch.take(out.size()));
  BITSNAP_ASSIGN(const ByteSpan squares, scratch.take(out.size()));
  BITSNAP_ASSIGN(const ByteSpan stored_squares, scratch.take(out.size()));
  std::memcpy(moments.data(), out.data(), out.size());
  BITSNAP_TRY(source_.read(*loss.squares, offset, squares, context));
  std::memcpy(stored_squares.data(), squares.data(), squares.size());
  if (losses_[*loss.squares].quantizer != nullptr) {
    BITSNAP_TRY(quantize(*loss.squares, offset, stored_squares, context, nullptr));
  }
  const quantize::Beside beside{.dtype = DType::f32, .bytes = stored_squares};
  BITSNAP_TRY(loss.quantizer->quantize(DType::f32, out, std::span(&beside, loss.multiples ? 1 : 0), &lost.reached));
  lost.updates = quantize::update_errors(*loss.adam, {moments, squares}, {out, stored_squares});
  return {};
}

}  // namespace bitsnap::save
