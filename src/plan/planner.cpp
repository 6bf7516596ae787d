// The fixed rules: which candidates a stream has, and the least estimate among them.
#include "plan/planner.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>

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

constexpr std::uint64_t kNoEstimate = std::numeric_limits<std::uint64_t>::max();

// What costs no more than one part in so many of the chunk needs no other to be looked at.
constexpr std::uint64_t kNextToNothing = 1024;

// And of what the optimizer's step leaves no more of than that, no other codec knows as much.
constexpr std::uint64_t kStepExplains = 8;

struct Rule {
  std::string_view codec;
  std::optional<codec::InputKind> input = {};
  bool for_moments = false;  // not for weights, which gain nothing from it and would pay for its estimates
  bool is_general = false;   // knows nothing of floats: looked at where their mantissas are not random
  bool takes_step = false;   // its inputs are what tells the optimizer's step
};
constexpr auto kBase = codec::InputKind::base;

// In the order in which ties are decided.
constexpr std::array<Rule, 9> kLosslessRules{{{"rounded_from", codec::InputKind::peer},
                                              {"optimizer_step", kBase, false, false, true},
                                              {"float_split"},
                                              {"factored_split", {}, true},
                                              {"ordinal_delta", kBase},
                                              {"byte_group", kBase, false, true},
                                              {"bitmask", kBase, false, true},
                                              {"byte_group", {}, false, true},
                                              {"zstd", {}, false, true}}};
constexpr std::array<Rule, 1> kLosslessPoolRules{{{"zstd"}}};
constexpr std::array<Rule, 2> kLmcRules{{{"byte_group", kBase}, {"byte_group"}}};
constexpr std::array<Rule, 1> kBitsnapRules{{{"bitmask", kBase}}};

std::span<const Rule> rules_of(Policy policy, Role role, bool is_pool) noexcept {
  switch (policy) {
    case Policy::lossless:
      if (is_pool) return kLosslessPoolRules;
      return kLosslessRules;
    case Policy::lmc: return kLmcRules;
    case Policy::bitsnap:
      // The mask is BitSnap's method for model states; its method for optimizer states is a quantizer.
      if (role == Role::weight || role == Role::other) return kBitsnapRules;
      return {};
    case Policy::raw: return {};
  }
  return {};
}

// Elements of the sample, gathered run by run. Positions depend on the number of elements alone.
Result<ByteSpan> gather_sample(ConstByteSpan data, std::size_t elements, std::size_t element_bytes, Scratch& scratch) {
  BITSNAP_ASSIGN(const ByteSpan sample, scratch.take(kSampleElements * element_bytes));
  for (std::size_t run = 0; run < kSampleRuns; ++run) {
    const std::size_t first = (elements - kRunElements) * run / (kSampleRuns - 1);
    std::memcpy(sample.data() + run * kRunElements * element_bytes, data.data() + first * element_bytes,
                kRunElements * element_bytes);
  }
  return sample;
}

// Of a byte of each float in a sample, how often it has each value; of the XOR with the base's where there is one.
entropy::Histogram count_sampled(ConstByteSpan sample, ConstByteSpan base, std::size_t element_bytes,
                                 std::size_t byte) noexcept {
  const std::size_t step = sample.size() / element_bytes / kLookedAt * element_bytes;
  entropy::Histogram counts{};
  for (std::size_t i = 0, at = byte; i < kLookedAt; ++i, at += step) {
    const std::byte own = base.empty() ? sample[at] : sample[at] ^ base[at];
    ++counts[std::to_integer<std::size_t>(own)];
  }
  return counts;
}

// Whether the bytes of a float below its exponent are as good as random, so that only its sign and exponent can be
// coded, and changed since the base by numbers and not by patterns of bits: codecs for floats then do better than any
// other does. By a few of the sampled elements.
bool is_only_for_floats(DType dtype, ConstByteSpan sample, ConstByteSpan base) noexcept {
  std::size_t lower_bytes = 0;
  switch (dtype) {
    case DType::bf16:
    case DType::f16: lower_bytes = 1; break;
    case DType::f32: lower_bytes = 2; break;
    default: return false;
  }
  const std::size_t element_bytes = element_size(dtype);
  for (std::size_t byte = 0; byte < lower_bytes; ++byte) {
    if (!entropy::looks_flat(count_sampled(sample, {}, element_bytes, byte), kLookedAt)) return false;
  }
  // A step of one alone flips from one bit to all of them.
  constexpr std::ptrdiff_t kFewPatterns = 4;
  if (base.empty()) return true;
  const entropy::Histogram changes = count_sampled(sample, base, element_bytes, 0);
  return changes[0] == kLookedAt || 256 - std::ranges::count(changes, 0U) > kFewPatterns;
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string candidate_name(const Candidate& candidate) {
  return fmt::format("{}{}", candidate.encoder->decoder().name(),
                     !candidate.input || candidate.takes_step     ? ""
                     : *candidate.input == codec::InputKind::base ? " on base"
                                                                  : " on peer");
}

}  // namespace

bool codes_with_peers(Policy policy) noexcept {
  return std::ranges::any_of(rules_of(policy, Role::weight, false),
                             [](const Rule& rule) { return rule.input == codec::InputKind::peer; });
}

StreamPlanner::StreamPlanner(Policy policy, DType dtype, Role role, bool is_pool, bool has_base,
                             std::optional<DType> peer, std::span<const codec::Input> step)
    : dtype_(dtype), peer_(peer), detects_trivial_(policy == Policy::lossless) {
  for (const Rule& rule : rules_of(policy, role, is_pool)) {
    const bool on_peer = rule.input == codec::InputKind::peer;
    if (on_peer ? !peer : rule.input && !has_base) continue;
    if (rule.for_moments && (role == Role::weight || role == Role::master)) continue;
    const codec::Encoder* encoder = codec::find_encoder(rule.codec);
    if (encoder == nullptr) continue;
    const codec::Input input{rule.input.value_or(kBase), on_peer ? *peer : dtype, {}};
    if (encoder->decoder().accepts(dtype, rule.takes_step ? step : std::span(&input, rule.input ? 1 : 0))) {
      candidates_.push_back({encoder, rule.input, rule.is_general, rule.takes_step});
    }
  }
  estimate_totals_.assign(candidates_.size(), 0);
  was_estimated_.assign(candidates_.size(), false);
}

bool StreamPlanner::codes_with_step() const noexcept {
  return std::ranges::any_of(candidates_, &Candidate::takes_step);
}

bool StreamPlanner::codes_with(codec::InputKind kind) const noexcept {
  return std::ranges::any_of(candidates_, [&](const Candidate& candidate) { return candidate.input == kind; });
}

Result<Choice> StreamPlanner::choose(ConstByteSpan data, const Surroundings& around, Scratch& scratch) const {
  Choice choice;
  choice.estimates.assign(candidates_.size(), kNoEstimate);
  const Scratch::Frame frame(scratch);
  const std::size_t element_bytes = element_size(dtype_);
  const std::size_t elements = data.size() / element_bytes;

  ConstByteSpan sample = data;
  Surroundings sampled = around;
  std::array<codec::Input, codec::kMaxInputs> sampled_step;
  std::size_t sample_elements = elements;
  if (elements > 2 * kSampleElements) {
    sample_elements = kSampleElements;
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
  }

  const bool only_for_floats = sample_elements < elements && is_only_for_floats(dtype_, sample, sampled.base);
  std::vector<std::pair<std::uint64_t, std::size_t>> ranks;  // estimate and candidate
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    const bool on_peer = candidate.input == codec::InputKind::peer;
    const bool whole = candidate.encoder->analyzes_whole_chunks();
    const Surroundings& seen = whole ? around : sampled;
    const codec::Input input{candidate.input.value_or(kBase), on_peer ? *peer_ : dtype_,
                             on_peer ? seen.peer : seen.base};
    if (candidate.takes_step ? seen.step.empty() : candidate.input && input.bytes.empty()) continue;
    if (candidate.is_general && only_for_floats && !ranks.empty()) continue;
    const codec::ChunkContext context{
        .dtype = dtype_,
        .elements = whole ? elements : sample_elements,
        .inputs = candidate.takes_step ? seen.step : std::span(&input, candidate.input ? 1 : 0),
        .parameters = {},
        .rows = whole ? around.rows : codec::RowPlace{}};
    BITSNAP_ASSIGN(const auto estimate, candidate.encoder->analyze(whole ? data : sample, context, elements, scratch));
    if (!estimate) continue;
    choice.estimates[i] = estimate->payload_bytes;
    if (estimate->payload_bytes < data.size()) ranks.emplace_back(estimate->payload_bytes, i);
    if (estimate->payload_bytes * (candidate.takes_step ? kStepExplains : kNextToNothing) <= data.size()) break;
  }
  std::ranges::sort(ranks);
  for (const auto& [estimate, i] : ranks) choice.ranked.push_back(candidates_[i]);
  if (!choice.ranked.empty()) choice.candidate = choice.ranked.front();
  return choice;
}

void StreamPlanner::note(const Choice& choice, std::string_view codec, std::uint64_t raw_bytes) {
  ++chunks_;
  if (!choice.estimates.empty()) {
    ++judged_;
    raw_bytes_ += raw_bytes;
  }
  for (std::size_t i = 0; i < choice.estimates.size(); ++i) {
    estimate_totals_[i] += std::min(choice.estimates[i], raw_bytes);
    if (choice.estimates[i] != kNoEstimate) was_estimated_[i] = true;
  }
  const auto known = std::ranges::find(used_, codec, &std::pair<std::string, std::uint64_t>::first);
  if (known == used_.end()) {
    used_.emplace_back(codec, 1);
  } else {
    ++known->second;
  }
}

std::string StreamPlanner::reason() const {
  std::string text;
  for (const auto& [codec, count] : used_) {
    text += fmt::format("{}{} {}/{}", text.empty() ? "" : ", ", codec, count, chunks_);
  }
  if (candidates_.empty()) return text + "; the policy has nothing else for it";
  if (judged_ == 0) return text;
  std::vector<std::size_t> order(candidates_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [this](std::size_t i) { return std::pair(estimate_totals_[i], i); });
  text += "; estimates:";
  for (const std::size_t i : order) {
    if (!was_estimated_[i]) continue;
    text += fmt::format(" {} {},", candidate_name(candidates_[i]), format_bytes(estimate_totals_[i]));
  }
  return text + fmt::format(" raw {}", format_bytes(raw_bytes_));
}

}  // namespace bitsnap::plan
