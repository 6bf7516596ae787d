// The table of rules, and its evaluation for one stream.
#include "plan/candidates.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "codec/registry_encode.hpp"

namespace bitsnap::plan {
namespace {

using enum CandidateInputs;

struct Rule {
  std::string_view codec;
  CandidateInputs inputs = none;
  bool only_for_moments = false;  // weights and masters gain nothing and would pay for its estimates
  bool is_general = false;
  std::optional<Quantization> only_after = {};  // nullopt: after any
  bool not_for_second_moments = false;          // to which squares are added
};

// The order decides ties.
constexpr std::array<Rule, 14> kLosslessRules{{
    {.codec = "rounded_from", .inputs = peer},
    {.codec = "gradient_step", .inputs = optimizer_step},
    {.codec = "optimizer_step", .inputs = optimizer_step},
    {.codec = "gradient_step", .inputs = base, .only_after = Quantization::exact, .not_for_second_moments = true},
    {.codec = "scaled_by", .inputs = optimizer_step, .only_after = Quantization::update_step},
    {.codec = "scaled_by", .inputs = peer, .only_after = Quantization::update_step},
    {.codec = "clustered", .only_after = Quantization::clusters},
    {.codec = "float_split"},
    {.codec = "factored_split", .only_for_moments = true},
    {.codec = "ordinal_delta", .inputs = base},
    {.codec = "byte_group", .inputs = base, .is_general = true},
    {.codec = "bitmask", .inputs = base, .is_general = true},
    {.codec = "byte_group", .is_general = true},
    {.codec = "zstd", .is_general = true},
}};
constexpr std::array<Rule, 1> kLosslessPoolRules{{{.codec = "zstd"}}};
// If only bytes count. Other objectives let a chain of the pool end: it is small, and most of it changes at every step.
constexpr std::array<Rule, 4> kSmallestPoolRules{{{.codec = "zstd"},
                                                  {.codec = "byte_group", .inputs = base, .is_general = true},
                                                  {.codec = "bitmask", .inputs = base, .is_general = true},
                                                  {.codec = "byte_group", .is_general = true}}};
constexpr std::array<Rule, 2> kLmcRules{{{.codec = "byte_group", .inputs = base}, {.codec = "byte_group"}}};
// The mask is BitSnap's method for model states; its method for optimizer states is a quantizer.
constexpr std::array<Rule, 2> kBitsnapRules{
    {{.codec = "bitmask", .inputs = base}, {.codec = "clustered", .only_after = Quantization::clusters}}};
constexpr std::span<const Rule> kBitsnapOptimizerRules = std::span(kBitsnapRules).last(1);

std::span<const Rule> rules_of(const PlannerSettings& settings, Role role, bool is_pool) noexcept {
  switch (settings.policy) {
    case Policy::lossless:
    case Policy::bounded:
      if (!is_pool) return kLosslessRules;
      if (settings.seeks_fewest_bytes()) return kSmallestPoolRules;
      return kLosslessPoolRules;
    case Policy::lmc: return kLmcRules;
    case Policy::bitsnap:
      if (role == Role::weight || role == Role::other) return kBitsnapRules;
      return kBitsnapOptimizerRules;
    case Policy::raw: return {};
  }
  return {};
}

bool applies(const Rule& rule, const StreamTraits& stream) noexcept {
  if (rule.only_after && *rule.only_after != stream.quantization) return false;
  // optimizer_step computes exact results of the step. Multiples are not exact; scaled_by codes those.
  if (rule.inputs == optimizer_step && !rule.only_after && stream.quantization == Quantization::update_step)
    return false;
  if (rule.not_for_second_moments && stream.role == Role::exp_avg_sq) return false;
  return !rule.only_for_moments || (stream.role != Role::weight && stream.role != Role::master);
}

// Adds the candidate if the stream has its inputs and the codec accepts them.
void add_if_accepted(std::vector<Candidate>& candidates, const Candidate& candidate, const StreamTraits& stream) {
  codec::Input single{codec::InputKind::base, stream.dtype, {}};
  std::span<const codec::Input> inputs;
  switch (candidate.inputs) {
    case none: break;
    case base:
      if (!stream.has_base) return;
      inputs = {&single, 1};
      break;
    case peer:
      if (!stream.peer_dtype) return;
      single = {codec::InputKind::peer, *stream.peer_dtype, {}};
      inputs = {&single, 1};
      break;
    case optimizer_step:
      if (!stream.has_base || stream.step_inputs.size() < 2) return;
      inputs = stream.step_inputs;
      break;
  }
  if (candidate.encoder->decoder().accepts(stream.dtype, inputs)) candidates.push_back(candidate);
}

}  // namespace

std::vector<Candidate> candidates_of(const PlannerSettings& settings, const StreamTraits& stream) {
  std::vector<Candidate> candidates;
  if (settings.forced != nullptr) {
    add_if_accepted(candidates, {.encoder = settings.forced, .inputs = optimizer_step}, stream);
    for (const CandidateInputs inputs : {peer, base, none}) {
      add_if_accepted(candidates, {.encoder = settings.forced, .inputs = inputs, .is_general = true}, stream);
    }
    return candidates;
  }
  for (const Rule& rule : rules_of(settings, stream.role, stream.is_pool)) {
    if (!applies(rule, stream)) continue;
    add_if_accepted(candidates,
                    {.encoder = codec::find_encoder(rule.codec), .inputs = rule.inputs, .is_general = rule.is_general},
                    stream);
  }
  return candidates;
}

bool codes_with_peers(const PlannerSettings& settings) noexcept {
  if (settings.forced != nullptr) {
    const codec::Input master{codec::InputKind::peer, DType::f32, {}};
    return settings.forced->decoder().accepts(DType::bf16, {&master, 1});
  }
  return std::ranges::any_of(rules_of(settings, Role::weight, false),
                             [](const Rule& rule) { return rule.inputs == peer; });
}

bool codes_with_optimizer_steps(const PlannerSettings& settings) noexcept {
  if (settings.forced != nullptr) return settings.forced->decoder().id() == codec::CodecId::optimizer_step;
  return std::ranges::any_of(rules_of(settings, Role::master, false),
                             [](const Rule& rule) { return rule.inputs == optimizer_step; });
}

std::string candidate_name(const Candidate& candidate) {
  const std::string_view inputs = candidate.inputs == base ? " on base" : candidate.inputs == peer ? " on peer" : "";
  return fmt::format("{}{}", candidate.encoder->decoder().name(), inputs);
}

}  // namespace bitsnap::plan
