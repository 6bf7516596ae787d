// choose(): contenders -> estimates -> scores -> ranking. follow(): a copied choice in place of all that.
#include "plan/planner.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "plan/chunk_sample.hpp"

namespace bitsnap::plan {
namespace {

// Each constant k stands for the share 1 / k of a chunk or of a score. docs/decisions/0011-objectives.md gives the
// reasons.

// Estimates are off by about this share. A base has to save more than that, because it makes a chain longer.
constexpr std::uint64_t kBaseHandicap = 256;

// Of candidates whose modelled times differ by less than this share, the smallest payload wins: the speeds of the model
// come from another machine, so sizes are more reliable than small differences in time.
constexpr std::uint64_t kTimeTolerance = 128;

// A choice may be off by this share of the expected payload plus this share of the chunk.
constexpr std::uint64_t kPayloadTolerance = 16;
constexpr std::uint64_t kChunkTolerance = 1024;

// If only bytes count, chunks are not similar if the shares of bytes that are the same as in the base differ by more
// than this: a codec without a base that suits both might be far from the best of the second. Four deviations of a
// sample.
constexpr std::size_t kSameBytesTolerance = 32;

// Estimates are close if they differ by less than this share of the score plus this share of the chunk.
constexpr std::uint64_t kCloseScores = 4;
constexpr std::uint64_t kCloseSizes = 256;

// Once a candidate shrinks a chunk this many times, the remaining candidates are skipped. optimizer_step and scaled_by
// shrink a chunk that much only if they found the arithmetic that made the elements; then no other codec comes near
// (docs/decisions/0012-optimizer-steps.md). The same holds for codecs that say so in their estimate. For other codecs,
// the payload is then too small to matter.
constexpr std::uint64_t kEnoughShrinking = 1024;
constexpr std::uint64_t kEnoughShrinkingByStep = 8;
constexpr std::uint64_t kEnoughShrinkingByMultiples = 2;
constexpr std::uint64_t kEnoughShrinkingByArithmetic = 2;

std::uint64_t enough_shrinking(const Candidate& candidate, const codec::Estimate& found, bool is_sampled,
                               bool has_lattice) noexcept {
  if (has_lattice) return candidate.inputs == CandidateInputs::peer ? kEnoughShrinkingByMultiples : kEnoughShrinking;
  // Estimates of small chunks are exact and cheap, so that all candidates are compared: one without a base may be
  // nearly as small, and keeps the chain short.
  if (!is_sampled) return kEnoughShrinking;
  if (found.explains_chunk) return kEnoughShrinkingByArithmetic;
  const bool is_step = candidate.inputs == CandidateInputs::optimizer_step;
  return is_step ? kEnoughShrinkingByStep : kEnoughShrinking;
}

// How far a payload may be from what the choice expects.
std::uint64_t leeway(const Choice& choice) noexcept {
  return choice.expected_bytes / kPayloadTolerance + choice.raw_bytes / kChunkTolerance;
}

}  // namespace

StreamPlanner::StreamPlanner(const PlannerSettings& settings, const StreamTraits& stream)
    : settings_(settings),
      dtype_(stream.dtype),
      quantization_(stream.quantization),
      detects_trivial_(chooses_by_objective(settings.policy) && settings.forced == nullptr),
      candidates_(candidates_of(settings, stream)),
      tally_(candidates_.size()) {}

bool StreamPlanner::codes_with_base() const noexcept { return std::ranges::any_of(candidates_, &Candidate::uses_base); }

bool StreamPlanner::codes_with_peer() const noexcept {
  return std::ranges::find(candidates_, CandidateInputs::peer, &Candidate::inputs) != candidates_.end();
}

bool StreamPlanner::codes_with_step() const noexcept {
  return std::ranges::find(candidates_, CandidateInputs::optimizer_step, &Candidate::inputs) != candidates_.end();
}

Result<Choice> StreamPlanner::choose(ConstByteSpan data, const Surroundings& around, Scratch& scratch,
                                     const std::optional<KnownSize>& known) const {
  Choice choice;
  choice.raw_bytes = data.size();
  choice.base_depth = around.base_depth;
  choice.contenders = contenders_of(around);
  choice.estimates.assign(candidates_.size(), kNoEstimate);
  if (settings_.counts_time()) {
    choice.times.assign(candidates_.size(), kNoEstimate);
    choice.raw_ps = score({}, data.size(), data.size(), around.base_depth);
  }
  const bool any_for_floats =
      std::ranges::any_of(choice.contenders, [this](std::size_t i) { return !candidates_[i].is_general; });
  const bool is_large = is_sampled(data.size() / element_size(dtype_));
  choice.skips_general_codecs = any_for_floats && is_large && general_codecs_are_pointless(data, around.base.bytes);
  if (is_large && settings_.seeks_fewest_bytes()) choice.same_bytes = count_same_bytes(dtype_, data, around.base.bytes);

  if (needs_no_estimate(choice)) {
    choice.candidate = candidates_[choice.contenders.front()];
    choice.ranked = {choice.candidate};
    return choice;
  }
  BITSNAP_ASSIGN(std::vector<Ranked> ranking, estimate_candidate_sizes(data, around, known, scratch, choice));
  if (ranking.empty()) return choice;
  put_best_first(ranking);
  for (const Ranked& ranked : ranking) choice.ranked.push_back(candidates_[ranked.candidate]);
  choice.candidate = choice.ranked.front();
  choice.expected_bytes = ranking.front().payload_bytes;
  choice.analysis = std::move(ranking.front().analysis);
  return choice;
}

std::vector<std::size_t> StreamPlanner::contenders_of(const Surroundings& around) const {
  std::vector<std::size_t> contenders;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (around.inputs_of(candidates_[i])) contenders.push_back(i);
  }
  return contenders;
}

// Rounded elements end in zero bits. Codecs for floats leave these out already, so that general codecs gain nothing.
bool StreamPlanner::general_codecs_are_pointless(ConstByteSpan data, ConstByteSpan base) const noexcept {
  if (quantization_ == Quantization::mantissa_bits || quantization_ == Quantization::master_bits) return true;
  return has_random_mantissas(dtype_, data, base);
}

// Time is well spent on a codec that rarely wins if only bytes count: changes need not be arithmetic.
bool StreamPlanner::is_pointless_for_floats(const Candidate& candidate) const noexcept {
  return candidate.is_general && !(settings_.seeks_fewest_bytes() && candidate.uses_base());
}

// True if a single codec remains: it is tried without an estimate, and gives up early if it does not pay.
bool StreamPlanner::needs_no_estimate(const Choice& choice) const noexcept {
  if (settings_.forced != nullptr) return choice.contenders.size() == 1;
  if (!choice.skips_general_codecs) return false;
  const auto may_win = [this](std::size_t i) { return !is_pointless_for_floats(candidates_[i]); };
  if (std::ranges::count_if(choice.contenders, may_win) != 1) return false;
  const Candidate& first = candidates_[choice.contenders.front()];
  if (first.is_general || first.inputs != CandidateInputs::none) return false;
  // Coding the exponents of trained parameters saves about an eighth of a chunk or more. The cost model says whether
  // that is worth the time.
  const std::uint64_t raw_bytes = choice.raw_bytes;
  return score(first, raw_bytes, raw_bytes - raw_bytes / 8, 0) < score({}, raw_bytes, raw_bytes, choice.base_depth);
}

Result<std::vector<StreamPlanner::Ranked>> StreamPlanner::estimate_candidate_sizes(
    ConstByteSpan data, const Surroundings& around, const std::optional<KnownSize>& known, Scratch& scratch,
    Choice& choice) const {
  const Scratch::Frame frame(scratch);
  const bool counts_time = settings_.counts_time();
  const std::size_t elements = data.size() / element_size(dtype_);
  const std::uint64_t raw_score = score({}, data.size(), data.size(), around.base_depth);
  std::uint64_t best_score = settings_.forced != nullptr ? kNoEstimate : raw_score;
  std::optional<ChunkSample> sample;  // taken when the first candidate needs it
  std::vector<Ranked> ranking;
  for (const std::size_t i : choice.contenders) {
    const Candidate& candidate = candidates_[i];
    if (choice.skips_general_codecs && !ranking.empty() && is_pointless_for_floats(candidate)) continue;
    // Skips a candidate whose coding alone takes longer than the best one.
    if (counts_time && score(candidate, data.size(), 0, around.base_depth) >= best_score) continue;

    std::optional<codec::Estimate> found;
    if (known && known->candidate == candidate) {
      found = codec::Estimate{.payload_bytes = known->payload_bytes};
    } else if (!is_sampled(elements) || candidate.encoder->analyzes_whole_chunks(dtype_)) {
      BITSNAP_ASSIGN(found, estimate(candidate, data, around, elements, scratch));
    } else {
      if (!sample) {
        BITSNAP_ASSIGN(sample, take_sample(data, dtype_, around, scratch));
      }
      BITSNAP_ASSIGN(found, estimate(candidate, sample->data, sample->around, elements, scratch));
    }
    if (!found) continue;
    choice.estimates[i] = found->payload_bytes;
    if (found->payload_bytes >= data.size()) continue;
    const std::uint64_t own_score = score(candidate, data.size(), found->payload_bytes, around.base_depth);
    if (counts_time) choice.times[i] = own_score;
    if (own_score >= raw_score && settings_.forced == nullptr) continue;
    ranking.push_back({own_score, found->payload_bytes, i, std::move(found->analysis)});
    best_score = std::min(best_score, own_score);
    const std::uint64_t sufficient =
        enough_shrinking(candidate, *found, is_sampled(elements), around.lattice.has_value());
    if (found->payload_bytes * sufficient <= data.size()) break;
  }
  if (settings_.seeks_fewest_bytes() && is_sampled(elements))
    BITSNAP_TRY(measure_close_contenders(data, around, known, scratch, ranking, choice));
  return ranking;
}

// A sample misjudges changes that are rare or lie close together, and each codec by another amount. So general codecs
// are compared with others by the payloads of the whole chunk.
Result<void> StreamPlanner::measure_close_contenders(ConstByteSpan data, const Surroundings& around,
                                                     const std::optional<KnownSize>& known, Scratch& scratch,
                                                     std::vector<Ranked>& ranking, Choice& choice) const {
  if (ranking.empty()) return {};
  const std::uint64_t best = std::ranges::min_element(ranking, {}, &Ranked::score)->score;
  const std::uint64_t close = best + best / kCloseScores + data.size() / kCloseSizes;
  const auto is_close = [&](const Ranked& ranked) { return ranked.score <= close; };
  const auto is_general_on_base = [&](const Ranked& ranked) {
    const Candidate& candidate = candidates_[ranked.candidate];
    return is_close(ranked) && candidate.is_general && candidate.uses_base();
  };
  if (std::ranges::count_if(ranking, is_close) < 2 || std::ranges::none_of(ranking, is_general_on_base)) return {};
  for (Ranked& ranked : ranking) {
    if (!is_close(ranked) || (known && known->candidate == candidates_[ranked.candidate])) continue;
    const Scratch::Frame frame(scratch);
    const Candidate& candidate = candidates_[ranked.candidate];
    const std::size_t elements = data.size() / element_size(dtype_);
    codec::EncodeContext context = context_of(candidate, data, around);
    context.analysis = ranked.analysis.get();
    BITSNAP_ASSIGN(const ByteSpan out, scratch.take(candidate.encoder->max_encoded_size(dtype_, elements)));
    BITSNAP_ASSIGN(const codec::PayloadSize size, candidate.encoder->encode(data, context, out, scratch));
    ranked.payload_bytes = size.value_or(data.size());
    ranked.score = score(candidate, data.size(), ranked.payload_bytes, around.base_depth);
    choice.estimates[ranked.candidate] = ranked.payload_bytes;
  }
  return {};
}

// `data` and `around` are the chunk of `elements` elements, or a sample of it.
Result<std::optional<codec::Estimate>> StreamPlanner::estimate(const Candidate& candidate, ConstByteSpan data,
                                                               const Surroundings& around, std::size_t elements,
                                                               Scratch& scratch) const {
  return candidate.encoder->analyze(data, context_of(candidate, data, around), elements, scratch);
}

codec::EncodeContext StreamPlanner::context_of(const Candidate& candidate, ConstByteSpan data,
                                               const Surroundings& around) const noexcept {
  return {{.dtype = dtype_, .elements = data.size() / element_size(dtype_), .inputs = *around.inputs_of(candidate)},
          around.rows,
          around.lattice,
          around.clusters};
}

void StreamPlanner::put_best_first(std::vector<Ranked>& ranking) const {
  std::ranges::sort(ranking, {}, [](const Ranked& ranked) { return std::pair(ranked.score, ranked.candidate); });
  if (!settings_.counts_time()) return;
  // Among about equal times, take the fewest bytes; but do not switch from no base to a base.
  const auto uses_base = [this](const Ranked& ranked) { return candidates_[ranked.candidate].uses_base(); };
  const bool may_use_base = uses_base(ranking.front());
  const std::uint64_t about_equal = ranking.front().score + ranking.front().score / kTimeTolerance;
  auto best = ranking.begin();
  for (auto it = ranking.begin(); it != ranking.end() && it->score <= about_equal; ++it) {
    if (it->payload_bytes < best->payload_bytes && (may_use_base || !uses_base(*it))) best = it;
  }
  std::rotate(ranking.begin(), best, best + 1);
}

std::uint64_t StreamPlanner::score(const Candidate& candidate, std::uint64_t raw_bytes, std::uint64_t payload_bytes,
                                   std::uint32_t base_depth) const noexcept {
  const bool on_base = candidate.uses_base();
  if (!settings_.counts_time()) return payload_bytes + (on_base ? payload_bytes / kBaseHandicap : 0);
  const codec::CodecId id = candidate.encoder != nullptr ? candidate.encoder->decoder().id() : codec::CodecId::raw;
  return modelled_ps(settings_.model, {.raw_bytes = raw_bytes,
                                       .payload_bytes = payload_bytes,
                                       .speed = reference_speed(id, dtype_, on_base),
                                       .decodes = on_base ? 2 + base_depth : 1});
}

std::optional<Choice> StreamPlanner::follow(const Choice& precedent, ConstByteSpan data,
                                            const Surroundings& around) const {
  if (contenders_of(around) != precedent.contenders) return std::nullopt;
  const auto was_sampled = [this](std::uint64_t bytes) { return is_sampled(bytes / element_size(dtype_)); };
  if (was_sampled(data.size()) != was_sampled(precedent.raw_bytes)) return std::nullopt;
  if (settings_.counts_time() && around.base_depth != precedent.base_depth) return std::nullopt;
  if (precedent.skips_general_codecs && !general_codecs_are_pointless(data, around.base.bytes)) return std::nullopt;
  if (precedent.same_bytes) {
    const std::uint32_t same = count_same_bytes(dtype_, data, around.base.bytes);
    const std::uint32_t difference = std::max(same, *precedent.same_bytes) - std::min(same, *precedent.same_bytes);
    if (difference > kExaminedElements * element_size(dtype_) / kSameBytesTolerance) return std::nullopt;
  }
  Choice followed = precedent;
  followed.is_followed = true;
  followed.estimates.assign(candidates_.size(), kNoEstimate);
  followed.times.clear();
  followed.analysis.reset();
  followed.ranked = {followed.candidate};
  followed.expected_bytes = precedent.expected_bytes * data.size() / precedent.raw_bytes;
  followed.raw_bytes = data.size();
  return followed;
}

bool StreamPlanner::is_misjudged(const Choice& choice, std::uint64_t payload_bytes) const noexcept {
  if (!settings_.seeks_fewest_bytes() || choice.contenders.size() < 2) return false;
  return choice.expected_bytes != kNoEstimate && payload_bytes > choice.expected_bytes + leeway(choice);
}

bool StreamPlanner::is_as_expected(const Choice& followed, std::uint64_t payload_bytes) noexcept {
  const bool is_step = followed.candidate.inputs == CandidateInputs::optimizer_step;
  const std::uint64_t sufficient = is_step ? kEnoughShrinkingByStep : kEnoughShrinking;
  if (payload_bytes * sufficient <= followed.raw_bytes) return true;
  const std::uint64_t off = leeway(followed);
  return payload_bytes <= followed.expected_bytes + off && payload_bytes + off >= followed.expected_bytes;
}

std::string StreamPlanner::reason() const {
  const std::string used = tally_.used();
  if (settings_.forced != nullptr) return fmt::format("{}; {} is forced", used, settings_.forced->decoder().name());
  if (candidates_.empty()) return used + "; the policy has nothing else for it";
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates_) names.push_back(candidate_name(candidate));
  const Objective objective = settings_.counts_time() ? settings_.objective : Objective::ratio;
  const std::string compared = tally_.compared(objective, names);
  if (!compared.empty()) return fmt::format("{}; {}", used, compared);
  return tally_.any_without_estimate() ? fmt::format("{}; {}: nothing else comes near", used, objective_name(objective))
                                       : used;
}

}  // namespace bitsnap::plan
