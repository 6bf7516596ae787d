// Computes what patterns cost, and plans which checkpoints are coded again.
#include "store/coding_plan.hpp"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

namespace bitsnap::store {
namespace {

// A new checkpoint may write this much in all, in hundredths of a standalone one.
constexpr std::uint64_t kMostWritten = 145;
// Dropping steps must free this part of what it writes.
constexpr std::uint64_t kLeastGain = 8;
// For how many checkpoints it is remembered what coding against another one takes. Then one tells again.
constexpr std::uint32_t kLongestMemory = 12;
// The longest period that is tried.
constexpr std::uint64_t kLongestPeriod = 16;

std::uint64_t bytes_of(std::uint64_t share, std::uint64_t raw_bytes) {
  return static_cast<std::uint64_t>(static_cast<double>(share) * static_cast<double>(raw_bytes) / kShareUnit);
}

bool is_coded_against_later(const StepNode& node) {
  return std::ranges::any_of(node.references, [&](const auto& reference) { return reference.step > node.step; });
}

std::uint64_t alone_of(const CodingShares& shares) { return shares.alone.value_or(kShareUnit); }

// What stands in the plan of references while it is made.
class Recoding {
 public:
  Recoding(const std::vector<StepNode>& nodes, const RetentionPlan& plan, const CodingPattern& pattern,
           std::uint32_t max_depth, std::optional<std::uint64_t> next_base)
      : plan_(plan), pattern_(pattern), max_depth_(max_depth), next_base_(next_base), shares_(shares_of(nodes)) {
    for (const StepNode& node : nodes) {
      nodes_.emplace(node.step, &node);
      for (const StepNode::Reference& reference : node.references) references_[node.step].insert(reference.step);
    }
    for (const RetentionPlan::Needed& needed : plan.needed) needed_.insert(needed.step);
  }

  RecodingPlan make() {
    if (!needed_.empty()) drop_needed();
    if (pattern_.backwards) code_backwards();
    return std::move(made_);
  }

 private:
  [[nodiscard]] std::uint64_t alone_bytes(const StepNode& node) const {
    return node.references.empty() ? node.bytes : std::max(node.bytes, bytes_of(alone_of(shares_), node.raw_bytes));
  }

  void drop_needed() {
    RecodingPlan planned;
    std::uint64_t held = 0;
    std::uint64_t allowed = 0;
    std::uint64_t freed = 0;
    std::uint64_t written = 0;
    const auto before = references_;
    for (const std::uint64_t step : needed_) freed += nodes_.at(step)->bytes;
    for (const std::uint64_t step : std::views::reverse(plan_.kept)) {
      const StepNode& node = *nodes_.at(step);
      held += node.bytes;
      allowed += alone_bytes(node);
      const bool is_dependent =
          std::ranges::any_of(node.references, [&](const auto& reference) { return needed_.contains(reference.step); });
      if (!is_dependent) continue;
      freed += node.bytes;
      if (const auto later = later_base(step)) {
        planned.onto.emplace(step, *later);
        references_[step] = {*later};
        written += bytes_of(later_share(shares_), node.raw_bytes);
      } else {
        std::erase_if(references_[step], [&](std::uint64_t other) { return needed_.contains(other); });
        written += alone_bytes(node);
      }
    }
    for (const std::uint64_t step : needed_) held += nodes_.at(step)->bytes;
    const bool is_next_base = next_base_ && needed_.contains(*next_base_);
    const bool pays = !is_next_base && freed > written && (freed - written) * kLeastGain > written;
    if (held <= allowed && !pays) {
      references_ = before;
      return;
    }
    made_ = std::move(planned);
    made_.dropped = needed_;
  }

  // A checkpoint that others are coded against can follow when these are coded against later ones, too. So either all
  // are, or none.
  void code_backwards() {
    const bool is_unknown = !shares_.earlier && !shares_.later;  // one tells what it takes
    const auto before = references_;
    std::map<std::uint64_t, std::uint64_t> onto;
    std::uint64_t freed = 0;
    std::uint64_t written = 0;
    for (const std::uint64_t step : std::views::reverse(plan_.kept)) {
      const StepNode& node = *nodes_.at(step);
      if (step == plan_.kept.back() || made_.onto.contains(step) || is_coded_against_later(node)) continue;
      const auto later = later_base(step);
      if (!later) continue;
      onto.emplace(step, *later);
      references_[step] = {*later};
      freed += node.bytes;
      written += bytes_of(later_share(shares_), node.raw_bytes);
      if (is_unknown) break;
    }
    if (is_unknown || (freed > written && (freed - written) * kLeastGain > written)) {
      made_.onto.merge(onto);
    } else {
      references_ = before;
    }
  }

  // The next kept step above that does not depend on this one or on a needed one.
  [[nodiscard]] std::optional<std::uint64_t> later_base(std::uint64_t step) const {
    const auto above = std::ranges::upper_bound(plan_.kept, step);
    for (auto at = above; at != plan_.kept.end(); ++at) {
      const std::set<std::uint64_t> closure = all_below(*at);
      const bool is_free = !closure.contains(step) &&
                           std::ranges::none_of(closure, [&](std::uint64_t other) { return needed_.contains(other); });
      if (is_free && depth_of(*at) + 1 + height_of(step) <= max_depth_) return *at;
    }
    return std::nullopt;
  }

  [[nodiscard]] std::set<std::uint64_t> all_below(std::uint64_t step) const {
    std::set<std::uint64_t> found;
    std::vector<std::uint64_t> pending = {step};
    while (!pending.empty()) {
      const auto references = references_.find(pending.back());
      pending.pop_back();
      if (references == references_.end()) continue;
      for (const std::uint64_t other : references->second) {
        if (found.insert(other).second) pending.push_back(other);
      }
    }
    return found;
  }

  // The longest path of references from the step, and to it. References form no circle; they are followed no further
  // than can matter.
  [[nodiscard]] std::uint32_t depth_of(std::uint64_t step, std::uint32_t left = 64) const {
    const auto references = references_.find(step);
    if (references == references_.end() || left == 0) return 0;
    std::uint32_t depth = 0;
    for (const std::uint64_t other : references->second) depth = std::max(depth, 1 + depth_of(other, left - 1));
    return depth;
  }
  [[nodiscard]] std::uint32_t height_of(std::uint64_t step, std::uint32_t left = 64) const {
    std::uint32_t height = 0;
    if (left == 0) return height;
    for (const auto& [other, references] : references_) {
      if (references.contains(step)) height = std::max(height, 1 + height_of(other, left - 1));
    }
    return height;
  }

  const RetentionPlan& plan_;
  const CodingPattern pattern_;
  const std::uint32_t max_depth_;
  const std::optional<std::uint64_t> next_base_;
  const CodingShares shares_;
  std::map<std::uint64_t, const StepNode*> nodes_;
  std::map<std::uint64_t, std::set<std::uint64_t>> references_;  // as they will be
  std::set<std::uint64_t> needed_;
  RecodingPlan made_;
};

}  // namespace

// Sizes are at most 2^62; shares need no more digits than a double has.
std::uint64_t share_of(std::uint64_t bytes, std::uint64_t raw_bytes) {
  if (raw_bytes == 0) return 0;
  return static_cast<std::uint64_t>(static_cast<double>(bytes) / static_cast<double>(raw_bytes) * kShareUnit);
}

CodingShares shares_of(const std::vector<StepNode>& nodes) {
  CodingShares shares;
  std::optional<std::uint64_t> farther;  // coded against an earlier one that is not the one before
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (node->state == StepState::uncommitted || node->is_damaged || node->raw_bytes == 0) continue;
    const auto before = std::next(node);
    const bool is_next = before != nodes.rend() && std::ranges::all_of(node->references, [&](const auto& reference) {
                           return reference.step == before->step;
                         });
    std::optional<std::uint64_t>& share = node->references.empty()        ? shares.alone
                                          : is_coded_against_later(*node) ? shares.later
                                          : is_next                       ? shares.earlier
                                                                          : farther;
    if (!share) share = share_of(node->bytes, node->raw_bytes);
  }
  if (!shares.earlier) shares.earlier = farther;
  if (shares.earlier || shares.later) return shares;
  for (const StepNode& node : std::views::reverse(nodes)) {
    if (node.state == StepState::uncommitted || node.is_damaged || !node.coded_share) continue;
    if (node.coded_age >= kLongestMemory) break;
    shares.later = node.coded_share;
    shares.remembered_age = node.coded_age;
    break;
  }
  return shares;
}

// If nearly nothing changes, distance does not matter. Several optimizer steps apart, what coding gains falls slowly;
// one step apart, nearly all of it is lost at once (docs/measurements.md).
std::uint64_t earlier_share(const CodingShares& shares, std::uint64_t distance) {
  const std::uint64_t alone = alone_of(shares);
  const std::uint64_t first = std::min(shares.earlier ? *shares.earlier : shares.later.value_or(alone), alone);
  if (distance <= 1 || first <= alone / 16) return first;
  if (first < alone * 6 / 10) return alone * 7 / 8;
  return std::min(alone, first + (alone - first) * 3 * (distance - 1) / 10);
}

std::uint64_t later_share(const CodingShares& shares) {
  const std::uint64_t first = earlier_share(shares, 1);
  return std::min(shares.later.value_or(first + first / 8), alone_of(shares));
}

PatternCost cost_of(const CodingPattern& pattern, const CodingShares& shares, std::uint64_t kept) {
  const std::uint64_t alone = alone_of(shares);
  const std::uint64_t later = later_share(shares);
  if (pattern.backwards) {
    // The oldest goes before the one that was the newest is coded again.
    const std::uint64_t all = alone + (kept - 1) * later;
    return {.held = all / kept, .written = alone + later, .peak = all + alone};
  }
  const auto share_of_nth = [&](std::uint64_t nth) {
    return nth % pattern.period == 0 ? alone : earlier_share(shares, nth % pattern.period);
  };
  const std::uint64_t again = std::min(alone, std::max(later, earlier_share(shares, 1)));
  std::uint64_t period = 0;  // bytes of one period
  for (std::uint64_t nth = 0; nth < pattern.period; ++nth) period += share_of_nth(nth);
  // The oldest is standalone, and goes when those that are coded against it are coded again, one after another.
  std::uint64_t peak = pattern.period > 1 ? again : 0;
  for (std::uint64_t nth = 2; nth < pattern.period; ++nth) peak += again - std::min(again, share_of_nth(nth));
  for (std::uint64_t nth = 0; nth <= kept; ++nth) peak += share_of_nth(nth);
  return {.held = period / pattern.period,
          .written = (period + (pattern.period - 1) * again) / pattern.period,
          .peak = peak};
}

CodingPattern choose_pattern(const CodingShares& shares, std::uint64_t kept) {
  if (kept <= 1) return {};
  if (!shares.earlier && !shares.later) return {.period = 1, .backwards = true};
  const std::uint64_t most_written = alone_of(shares) * kMostWritten / 100;
  const std::uint64_t most = (kept + 1) * kShareUnit;
  CodingPattern best;
  std::uint64_t held = cost_of(best, shares, kept).held;
  const auto consider = [&](const CodingPattern& pattern) {
    const PatternCost cost = cost_of(pattern, shares, kept);
    if (cost.written > most_written || cost.peak > most || cost.held >= held) return;
    best = pattern;
    held = cost.held;
  };
  for (std::uint64_t period = 2; period <= std::min(kept, kLongestPeriod); ++period) consider({period, false});
  consider({.period = 1, .backwards = true});
  return best;
}

std::optional<std::uint64_t> choose_base(const std::vector<StepNode>& nodes, const std::vector<std::uint64_t>& kept,
                                         const CodingPattern& pattern) {
  if (pattern.backwards) return std::nullopt;
  std::uint64_t position = 1;  // of the next checkpoint in its period, if the first is at 0
  for (const StepNode& node : std::views::reverse(nodes)) {
    if (position >= pattern.period) return std::nullopt;
    if (node.state != StepState::committed) continue;
    if (node.is_kept_as_damaged) continue;
    if (node.is_damaged || is_coded_against_later(node)) return std::nullopt;
    if (!node.references.empty()) {
      ++position;
      continue;
    }
    if (!std::ranges::binary_search(kept, node.step)) return std::nullopt;
    return node.step;
  }
  return std::nullopt;
}

RecodingPlan plan_recoding(const std::vector<StepNode>& nodes, const RetentionPlan& plan, const CodingPattern& pattern,
                           std::uint32_t max_depth, std::optional<std::uint64_t> next_base) {
  return Recoding(nodes, plan, pattern, max_depth, next_base).make();
}

}  // namespace bitsnap::store
