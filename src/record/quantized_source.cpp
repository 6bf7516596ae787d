// Who loses what, and reading what is left.
#include "record/quantized_source.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <unordered_map>
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
#include "record/name_parts.hpp"

namespace bitsnap::record {
namespace {

constexpr std::string_view kHowToGiveAdam =
    "say them (in C++ SaveOptions::adam or TensorSource::adam; in Python bitsnap.bounded(betas=..., eps=..., step=...) "
    "or bitsnap.bounded(optimizer=...); on the command line --betas 0.9,0.95 --eps 1e-8 --adam-step 1000), or keep "
    "first moments exact with the rule exp_avg=exact";

std::optional<double> finite(double number) noexcept {
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

}  // namespace

Result<void> QuantizedSource::prepare(const State& state, const SaveOptions& options, exec::Executor& executor) {
  for (const LossRule& rule : options.loss) {
    if (auto checked = quantize::check_rule(rule); !checked) {
      return tl::unexpected(std::move(checked).error().within(fmt::format("rule {}", format_loss_rule(rule))));
    }
  }
  const auto preset = quantize::preset_rules(options.policy);
  if (options.loss.empty() && preset.empty()) return {};
  pair_moments();
  std::vector<std::pair<std::size_t, const LossRule*>> first_moments;  // behind what stands beside them
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    const auto& tensor = streams_.streams[i].tensor;
    if (!tensor) continue;
    const TensorInfo& info = content_.tensors[*tensor];
    const LossRule* const rule = quantize::find_rule(info.role, info.name, options.loss, preset);
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

void QuantizedSource::pair_moments() {
  squares_.resize(losses_.size());
  std::unordered_map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    const auto& tensor = streams_.streams[i].tensor;
    if (!tensor || streams_.streams[i].dtype != DType::f32) continue;
    const TensorInfo& info = content_.tensors[*tensor];
    if (info.role == Role::exp_avg_sq && !info.name.ends_with("max_exp_avg_sq")) {
      by_name.emplace(without_moment(info.name), i);
    }
  }
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    const auto& tensor = streams_.streams[i].tensor;
    if (!tensor || content_.tensors[*tensor].role != Role::exp_avg) continue;
    const auto found = by_name.find(without_moment(content_.tensors[*tensor].name));
    if (found != by_name.end() && streams_.streams[found->second].elements == streams_.streams[i].elements) {
      squares_[i] = found->second;
    }
  }
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

// Those of the same name, or those that there are.
DType QuantizedSource::weights_of(std::size_t master) const {
  const std::string name = bare_name(content_.tensors[*streams_.streams[master].tensor].name);
  DType any = DType::bf16;
  bool has_bf16 = false;
  for (const TensorInfo& info : content_.tensors) {
    if (info.role != Role::weight || (info.dtype != DType::bf16 && info.dtype != DType::f16)) continue;
    if (info.element_count() == streams_.streams[master].elements && bare_name(info.name) == name) return info.dtype;
    has_bf16 |= info.dtype == DType::bf16;
    if (!has_bf16) any = DType::f16;
  }
  return has_bf16 ? DType::bf16 : any;
}

Result<void> QuantizedSource::prepare_update_step(std::size_t stream, const LossRule& rule,
                                                  std::optional<AdamNumbers> adam) {
  Loss& loss = losses_[stream];
  if (!adam) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: update_step needs Adam's betas, epsilon and count of steps, which nobody said: {}",
                            describe(stream), kHowToGiveAdam));
  }
  if (adam->step == 0) return {};  // no step was taken: moments are those that an optimizer begins with
  auto made = quantize::UpdateStep::of(parameters_of(*adam, rule.amount));
  if (!made) return tl::unexpected(std::move(made).error().within(describe(stream)));
  loss.multiples = Multiples{made->lattice(), *loss.squares};
  const double largest = made->largest_update();
  const double error = square_error(*loss.squares);
  loss.bound = rule.amount / 2;
  if (std::isfinite(made->bound(largest, error))) {
    loss.bound = made->bound(largest, error);
    loss.next_update_bound = finite(made->next_bound(largest, error));
    loss.all_updates_bound = finite(made->cumulative_bound(largest, error));
  }
  loss.quantizer = std::make_unique<quantize::UpdateStep>(*made);
  return {};
}

// Most that a stored second moment is off, of its magnitude, but for those past nearest.
double QuantizedSource::square_error(std::size_t squares) const noexcept {
  const Loss& loss = losses_[squares];
  if (loss.quantizer == nullptr) return 0;
  return loss.rule.quantization == Quantization::mantissa_bits ? loss.bound : 1;
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

std::optional<QuantizerRecord> QuantizedSource::promise(std::size_t stream) const {
  const Loss& loss = losses_[stream];
  if (loss.quantizer == nullptr) return std::nullopt;
  return QuantizerRecord{.quantization = loss.rule.quantization,
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

}  // namespace bitsnap::record
