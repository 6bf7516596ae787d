// The fixed rules: which candidates a stream has, and the least estimate among them.
#include "plan/planner.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "codec/registry_encode.hpp"
#include "entropy/histogram.hpp"

namespace bitsnap::plan {
namespace {

// A chunk is judged by so many runs spread evenly over it. A run is long enough for the block coders' tables to settle,
// and the sixteenth of a chunk that is sampled bounds what choosing costs.
constexpr std::size_t kSampleRuns = 16;
constexpr std::size_t kRunElements = 1024;
constexpr std::size_t kSampleElements = kSampleRuns * kRunElements;

constexpr std::size_t kLookedAt = 2048;  // of the sampled elements, for a first look

// What costs no more than one part in so many of the chunk needs no other to be looked at.
constexpr std::uint64_t kNextToNothing = 1024;

// And of what the optimizer's step leaves no more of than that, no other codec knows as much.
constexpr std::uint64_t kStepExplains = 8;

// Of what takes as long, but for one part in so many, the one of less bytes, as speeds are another machine's; but none
// that needs a base in place of one that does not.
constexpr std::uint64_t kPerTime = 128;

// A chunk takes about what was expected of it if it is off by no more than one part in so many of that, and in so many
// of itself.
constexpr std::uint64_t kPerExpected = 16;
constexpr std::uint64_t kPerChunk = 1024;

// Nor does any of what was made multiples, where no more than that is left.
constexpr std::uint64_t kMultiplesExplain = 2;

// Estimates are off by about one part in so many: what needs no base has the advantage of it, and ends a chain.
constexpr std::uint64_t kPerDoubt = 256;

struct Rule {
  std::string_view codec;
  std::optional<codec::InputKind> input = {};
  bool for_moments = false;  // not for weights, which gain nothing from it and would pay for its estimates
  bool is_general = false;   // knows nothing of floats: looked at where their mantissas are not random
  bool takes_step = false;   // its inputs are what tells the optimizer's step
  Quantization only_for = Quantization::exact;  // nothing else; exact: for all
};
constexpr auto kBase = codec::InputKind::base;
constexpr auto kPeer = codec::InputKind::peer;

// In the order in which ties are decided.
constexpr std::array<Rule, 12> kLosslessRules{{{"rounded_from", kPeer},
                                               {"optimizer_step", kBase, false, false, true},
                                               {"scaled_by", kBase, false, false, true, Quantization::update_step},
                                               {"scaled_by", kPeer, false, false, false, Quantization::update_step},
                                               {"clustered", {}, false, false, false, Quantization::clusters},
                                               {"float_split"},
                                               {"factored_split", {}, true},
                                               {"ordinal_delta", kBase},
                                               {"byte_group", kBase, false, true},
                                               {"bitmask", kBase, false, true},
                                               {"byte_group", {}, false, true},
                                               {"zstd", {}, false, true}}};
constexpr std::array<Rule, 1> kLosslessPoolRules{{{"zstd"}}};
constexpr std::array<Rule, 2> kLmcRules{{{"byte_group", kBase}, {"byte_group"}}};
constexpr std::array<Rule, 2> kBitsnapRules{
    {{"bitmask", kBase}, {"clustered", {}, false, false, false, Quantization::clusters}}};
constexpr std::array<Rule, 1> kBitsnapStateRules{{{"clustered", {}, false, false, false, Quantization::clusters}}};

std::span<const Rule> rules_of(Policy policy, Role role, bool is_pool) noexcept {
  switch (policy) {
    case Policy::lossless:
    case Policy::bounded:
      if (is_pool) return kLosslessPoolRules;
      return kLosslessRules;
    case Policy::lmc: return kLmcRules;
    case Policy::bitsnap:
      // The mask is BitSnap's method for model states; its method for optimizer states is a quantizer.
      if (role == Role::weight || role == Role::other) return kBitsnapRules;
      return kBitsnapStateRules;
    case Policy::raw: return {};
  }
  return {};
}

std::size_t first_of_run(std::size_t run, std::size_t elements) noexcept {
  return (elements - kRunElements) * run / (kSampleRuns - 1);
}

// Elements of the sample, gathered run by run. Positions depend on the number of elements alone.
Result<ByteSpan> gather_sample(ConstByteSpan data, std::size_t elements, std::size_t element_bytes, Scratch& scratch) {
  BITSNAP_ASSIGN(const ByteSpan sample, scratch.take(kSampleElements * element_bytes));
  for (std::size_t run = 0; run < kSampleRuns; ++run) {
    std::memcpy(sample.data() + run * kRunElements * element_bytes,
                data.data() + first_of_run(run, elements) * element_bytes, kRunElements * element_bytes);
  }
  return sample;
}

// Of a byte of each float that is looked at in a chunk, how often it has each value; of the XOR with the base's where
// there is one.
entropy::Histogram count_bytes(ConstByteSpan data, ConstByteSpan base, std::size_t element_bytes,
                               std::size_t byte) noexcept {
  constexpr std::size_t kPerRun = kLookedAt / kSampleRuns;
  const std::size_t step = kRunElements / kPerRun * element_bytes;
  const std::size_t elements = data.size() / element_bytes;
  entropy::Histogram counts{};
  for (std::size_t run = 0; run < kSampleRuns; ++run) {
    std::size_t at = first_of_run(run, elements) * element_bytes + byte;
    for (std::size_t i = 0; i < kPerRun; ++i, at += step) {
      const std::byte own = base.empty() ? data[at] : data[at] ^ base[at];
      ++counts[std::to_integer<std::size_t>(own)];
    }
  }
  return counts;
}

// Whether the bytes of a float below its exponent are as good as random, so that only its sign and exponent can be
// coded, and changed since the base by numbers and not by patterns of bits: codecs for floats then do better than any
// other does. By a few of the sampled elements.
bool has_random_mantissas(DType dtype, ConstByteSpan data, ConstByteSpan base) noexcept {
  std::size_t lower_bytes = 0;
  switch (dtype) {
    case DType::bf16:
    case DType::f16: lower_bytes = 1; break;
    case DType::f32: lower_bytes = 2; break;
    default: return false;
  }
  const std::size_t element_bytes = element_size(dtype);
  for (std::size_t byte = 0; byte < lower_bytes; ++byte) {
    if (!entropy::looks_flat(count_bytes(data, {}, element_bytes, byte), kLookedAt)) return false;
  }
  // A step of one alone flips from one bit to all of them.
  constexpr std::ptrdiff_t kFewPatterns = 4;
  if (base.empty()) return true;
  const entropy::Histogram changes = count_bytes(data, base, element_bytes, 0);
  return changes[0] == kLookedAt || 256 - std::ranges::count(changes, 0U) > kFewPatterns;
}

std::string candidate_name(const Candidate& candidate) {
  return fmt::format("{}{}", candidate.encoder->decoder().name(),
                     !candidate.input || candidate.takes_step     ? ""
                     : *candidate.input == codec::InputKind::base ? " on base"
                                                                  : " on peer");
}

}  // namespace

bool codes_with_steps(Policy policy, const Goal& goal) noexcept {
  if (goal.forced != nullptr) return goal.forced->decoder().id() == codec::CodecId::optimizer_step;
  return std::ranges::any_of(rules_of(policy, Role::master, false), &Rule::takes_step);
}

bool codes_with_peers(Policy policy, const Goal& goal) noexcept {
  if (goal.forced != nullptr) {
    const codec::Input master{codec::InputKind::peer, DType::f32, {}};
    return goal.forced->decoder().accepts(DType::bf16, {&master, 1});
  }
  return std::ranges::any_of(rules_of(policy, Role::weight, false),
                             [](const Rule& rule) { return rule.input == codec::InputKind::peer; });
}

StreamPlanner::StreamPlanner(Policy policy, DType dtype, Role role, bool is_pool, bool has_base,
                             std::optional<DType> peer, std::span<const codec::Input> step, const Goal& goal,
                             Quantization quantization)
    : dtype_(dtype),
      quantization_(quantization),
      peer_(peer),
      goal_(goal_under(policy, goal)),
      detects_trivial_(chooses_by_objective(policy) && goal.forced == nullptr) {
  const auto is_there = [&](std::optional<codec::InputKind> input) {
    return !input || (*input == codec::InputKind::peer ? peer.has_value() : has_base);
  };
  if (goal.forced != nullptr) {
    if (has_base) add_step_candidate(goal.forced, step);
    for (const std::optional<codec::InputKind> input :
         {std::optional(codec::InputKind::peer), std::optional(kBase), {}}) {
      if (is_there(input)) add_candidate(goal.forced, input, true);
    }
  } else {
    for (const Rule& rule : rules_of(policy, role, is_pool)) {
      if (!is_there(rule.input)) continue;
      // A step is told by what it made of others; what was made multiples says nothing of it.
      if (rule.only_for != Quantization::exact && rule.only_for != quantization) continue;
      const bool are_multiples = quantization == Quantization::update_step;
      if (rule.takes_step && are_multiples && rule.only_for != quantization) continue;
      if (rule.for_moments && (role == Role::weight || role == Role::master)) continue;
      if (rule.takes_step) {
        add_step_candidate(codec::find_encoder(rule.codec), step);
      } else {
        add_candidate(codec::find_encoder(rule.codec), rule.input, rule.is_general);
      }
    }
  }
  tally_ = ChoiceTally(candidates_.size());
}

void StreamPlanner::add_candidate(const codec::Encoder* encoder, std::optional<codec::InputKind> input,
                                  bool is_general) {
  if (encoder == nullptr) return;
  const codec::Input given{input.value_or(kBase), input == codec::InputKind::peer ? *peer_ : dtype_, {}};
  if (encoder->decoder().accepts(dtype_, {&given, input ? 1U : 0U})) {
    candidates_.push_back({encoder, input, is_general});
  }
}

void StreamPlanner::add_step_candidate(const codec::Encoder* encoder, std::span<const codec::Input> step) {
  if (encoder == nullptr || step.size() < 2 || !encoder->decoder().accepts(dtype_, step)) return;
  candidates_.push_back({.encoder = encoder, .input = kBase, .takes_step = true});
}

// What was rounded has zeros for its low bits, which codecs for floats see.
bool StreamPlanner::is_only_for_floats(ConstByteSpan data, ConstByteSpan base) const noexcept {
  if (quantization_ == Quantization::mantissa_bits || quantization_ == Quantization::master_bits) return true;
  return has_random_mantissas(dtype_, data, base);
}

bool StreamPlanner::codes_with_step() const noexcept {
  return std::ranges::any_of(candidates_, &Candidate::takes_step);
}

bool StreamPlanner::codes_with(codec::InputKind kind) const noexcept {
  return std::ranges::any_of(candidates_, [&](const Candidate& candidate) { return candidate.input == kind; });
}

std::uint64_t StreamPlanner::score(const Candidate& candidate, std::uint64_t raw_bytes, std::uint64_t payload_bytes,
                                   const Surroundings& around) const noexcept {
  const bool on_base = candidate.input == kBase;
  if (!goal_.counts_time()) return payload_bytes + (on_base ? payload_bytes / kPerDoubt : 0);
  const codec::CodecId id = candidate.encoder != nullptr ? candidate.encoder->decoder().id() : codec::CodecId::raw;
  return modelled_ps(goal_.model, {.raw_bytes = raw_bytes,
                                   .payload_bytes = payload_bytes,
                                   .speed = recorded_speed(id, dtype_, on_base),
                                   .decodes = on_base ? 2 + around.base_depth : 1});
}

// Of the one codec that is left for floats whose mantissas are random: whether it is better than raw if it saves an
// eighth, as it does of any trained numbers. If it does not, it says so before it has written much.
bool StreamPlanner::is_worth_trying_unseen(const Candidate& candidate, std::uint64_t raw_bytes,
                                           std::uint64_t raw_score) const noexcept {
  return !candidate.is_general && !candidate.input &&
         score(candidate, raw_bytes, raw_bytes - raw_bytes / 8, {}) < raw_score;
}

std::vector<std::size_t> StreamPlanner::contenders(const Surroundings& around) const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const auto& input = candidates_[i].input;
    if (candidates_[i].takes_step && around.step.empty()) continue;
    if (input && (*input == kBase ? around.base : around.peer).empty()) continue;
    found.push_back(i);
  }
  return found;
}

std::optional<Choice> StreamPlanner::follow(const Choice& precedent, ConstByteSpan data,
                                            const Surroundings& around) const {
  if (contenders(around) != precedent.contenders) return std::nullopt;
  const auto is_sampled = [this](std::uint64_t bytes) { return bytes / element_size(dtype_) > 2 * kSampleElements; };
  if (is_sampled(data.size()) != is_sampled(precedent.raw_bytes)) return std::nullopt;
  if (goal_.counts_time() && around.base_depth != precedent.base_depth) return std::nullopt;
  if (precedent.only_for_floats && !is_only_for_floats(data, around.base)) return std::nullopt;
  Choice followed = precedent;
  followed.is_followed = true;
  followed.estimates.assign(candidates_.size(), kNoEstimate);
  followed.times.clear();
  followed.analysis.reset();
  followed.ranked.assign({followed.candidate});
  followed.expected_bytes = precedent.expected_bytes * data.size() / precedent.raw_bytes;
  followed.raw_bytes = data.size();
  return followed;
}

bool StreamPlanner::is_as_expected(const Choice& followed, std::uint64_t payload_bytes) noexcept {
  const std::uint64_t leeway = followed.expected_bytes / kPerExpected + followed.raw_bytes / kPerChunk;
  if (payload_bytes * (followed.candidate.takes_step ? kStepExplains : kNextToNothing) <= followed.raw_bytes)
    return true;
  return payload_bytes <= followed.expected_bytes + leeway && payload_bytes + leeway >= followed.expected_bytes;
}

void StreamPlanner::put_best_first(std::vector<Rank>& ranks) const {
  std::ranges::sort(ranks, {}, [](const Rank& rank) { return std::pair(rank.score, rank.candidate); });
  if (!goal_.counts_time() || ranks.empty()) return;
  const auto on_base = [this](const Rank& rank) { return candidates_[rank.candidate].input == kBase; };
  const bool may_be_on_base = on_base(ranks.front());
  const std::uint64_t as_quick = ranks.front().score + ranks.front().score / kPerTime;
  auto best = ranks.begin();
  for (auto rank = ranks.begin(); rank != ranks.end() && rank->score <= as_quick; ++rank) {
    if (rank->bytes < best->bytes && (may_be_on_base || !on_base(*rank))) best = rank;
  }
  std::rotate(ranks.begin(), best, best + 1);
}

Result<Choice> StreamPlanner::choose(ConstByteSpan data, const Surroundings& around, Scratch& scratch,
                                     const std::optional<Coded>& known) const {
  Choice choice;
  choice.estimates.assign(candidates_.size(), kNoEstimate);
  const std::size_t element_bytes = element_size(dtype_);
  const std::size_t elements = data.size() / element_bytes;
  const bool is_sampled = elements > 2 * kSampleElements;
  const std::uint64_t raw_score = score({}, data.size(), data.size(), around);
  if (goal_.counts_time()) {
    choice.times.assign(candidates_.size(), kNoEstimate);
    choice.raw_ps = raw_score;
  }

  choice.raw_bytes = data.size();
  choice.base_depth = around.base_depth;
  choice.contenders = contenders(around);
  const std::vector<std::size_t>& contenders = choice.contenders;
  const auto take_unseen = [&] {
    choice.candidate = candidates_[contenders.front()];
    choice.ranked.push_back(choice.candidate);
    return choice;
  };
  if (goal_.forced != nullptr && contenders.size() == 1) return take_unseen();
  const auto count_special =
      std::ranges::count_if(contenders, [this](std::size_t i) { return !candidates_[i].is_general; });
  const bool only_for_floats = is_sampled && count_special > 0 && is_only_for_floats(data, around.base);
  choice.only_for_floats = only_for_floats;
  if (only_for_floats && count_special == 1 &&
      is_worth_trying_unseen(candidates_[contenders.front()], data.size(), raw_score)) {
    return take_unseen();
  }

  const Scratch::Frame frame(scratch);
  ConstByteSpan sample = data;
  Surroundings sampled = around;
  std::array<codec::Input, codec::kMaxInputs> sampled_step;
  const std::size_t sample_elements = is_sampled ? kSampleElements : elements;
  bool is_gathered = !is_sampled;  // once somebody asks for it
  const auto gather = [&]() -> Result<void> {
    is_gathered = true;
    BITSNAP_ASSIGN(sample, gather_sample(data, elements, element_bytes, scratch));
    if (!around.base.empty()) {
      BITSNAP_ASSIGN(sampled.base, gather_sample(around.base, elements, element_bytes, scratch));
    }
    if (!around.peer.empty()) {
      BITSNAP_ASSIGN(sampled.peer, gather_sample(around.peer, elements, element_size(*peer_), scratch));
    }
    for (std::size_t i = 0; i < around.step.size(); ++i) {
      sampled_step[i] = around.step[i];
      BITSNAP_ASSIGN(sampled_step[i].bytes,
                     gather_sample(around.step[i].bytes, elements, element_size(around.step[i].dtype), scratch));
    }
    sampled.step = std::span(sampled_step).first(around.step.size());
    return {};
  };

  std::vector<Rank> ranks;
  std::uint64_t best = goal_.forced != nullptr ? kNoEstimate : raw_score;
  for (const std::size_t i : contenders) {
    const Candidate& candidate = candidates_[i];
    if (candidate.is_general && only_for_floats && !ranks.empty()) continue;
    // What takes longer than the best though it left nothing to write is not asked.
    if (goal_.counts_time() && score(candidate, data.size(), 0, around) >= best) continue;
    const bool is_known = known && known->candidate == candidate;
    const bool whole = is_known || candidate.encoder->analyzes_whole_chunks(dtype_);
    if (!whole && !is_gathered) BITSNAP_TRY(gather());
    const Surroundings& seen = whole ? around : sampled;
    const bool on_peer = candidate.input == codec::InputKind::peer;
    const codec::Input input{candidate.input.value_or(kBase), on_peer ? *peer_ : dtype_,
                             on_peer ? seen.peer : seen.base};
    const codec::ChunkContext context{
        .dtype = dtype_,
        .elements = whole ? elements : sample_elements,
        .inputs = candidate.takes_step ? seen.step : std::span(&input, candidate.input ? 1 : 0),
        .parameters = {},
        .rows = whole ? around.rows : codec::RowPlace{},
        .lattice = around.lattice,
        .clusters = around.clusters};
    std::optional<codec::Estimate> estimate = codec::Estimate{.payload_bytes = is_known ? known->payload_bytes : 0};
    if (!is_known) {
      BITSNAP_ASSIGN(estimate, candidate.encoder->analyze(whole ? data : sample, context, elements, scratch));
    }
    if (!estimate) continue;
    choice.estimates[i] = estimate->payload_bytes;
    if (estimate->payload_bytes >= data.size()) continue;
    const std::uint64_t own = score(candidate, data.size(), estimate->payload_bytes, around);
    if (goal_.counts_time()) choice.times[i] = own;
    if (own >= raw_score && goal_.forced == nullptr) continue;
    ranks.push_back({own, estimate->payload_bytes, i, std::move(estimate->analysis)});
    best = std::min(best, own);
    // Of what is not sampled, estimates are exact: it costs less to ask the others than to depend on more.
    const std::uint64_t part = around.lattice && candidate.input == kPeer              ? kMultiplesExplain
                               : candidate.takes_step && is_sampled && !around.lattice ? kStepExplains
                                                                                       : kNextToNothing;
    if (estimate->payload_bytes * part <= data.size()) break;
  }
  put_best_first(ranks);
  for (const Rank& rank : ranks) choice.ranked.push_back(candidates_[rank.candidate]);
  if (!ranks.empty()) {
    choice.candidate = choice.ranked.front();
    choice.expected_bytes = ranks.front().bytes;
    choice.analysis = std::move(ranks.front().analysis);
  }
  return choice;
}

std::string StreamPlanner::reason() const {
  const std::string used = tally_.used();
  if (goal_.forced != nullptr) return fmt::format("{}; {} is forced", used, goal_.forced->decoder().name());
  if (candidates_.empty()) return used + "; the policy has nothing else for it";
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates_) names.push_back(candidate_name(candidate));
  const std::string compared = tally_.compared(goal_.objective, names);
  if (!compared.empty()) return fmt::format("{}; {}", used, compared);
  return tally_.any_clear() ? fmt::format("{}; {}: nothing else comes near", used, objective_name(goal_.objective))
                            : used;
}

}  // namespace bitsnap::plan
