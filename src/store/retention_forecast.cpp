// The saves and prunes of store_encode.cpp and store_prune.cpp, on sizes alone.
#include "store/retention_forecast.hpp"

#include <algorithm>
#include <optional>
#include <ranges>
#include <utility>

#include "store/retention_plan.hpp"

namespace bitsnap::store {
namespace {

constexpr std::uint64_t kRawBytes = std::uint64_t{1} << 40;  // of a checkpoint that is played
// A run that keeps more is played as if it kept this many: each further one takes the mean.
constexpr std::uint64_t kMostPlayed = 64;
constexpr std::size_t kFarthest = 16;
constexpr std::uint64_t kCountedSaves = 120;  // a multiple of most periods

std::uint64_t to_bytes(double share) { return static_cast<std::uint64_t>(share * static_cast<double>(kRawBytes)); }

std::uint64_t coded_bytes(const std::vector<double>& shares, std::uint64_t distance) {
  return to_bytes(shares[static_cast<std::size_t>(std::min<std::uint64_t>(distance, shares.size()) - 1)]);
}

class PlayedRun {
 public:
  PlayedRun(std::span<const TrialShares> shares, std::uint64_t keep_last, std::uint32_t max_depth)
      : shares_(shares), max_depth_(max_depth) {
    retention_.keep_last = keep_last;
  }

  void save() {
    const Next next = choose_next();
    StepNode node{.step = ++newest_, .raw_bytes = kRawBytes, .references = {}};
    const TrialShares& shares = shares_of_step(newest_);
    node.bytes = next.base ? coded_bytes(shares.earlier, newest_ - *next.base) : to_bytes(shares.alone);
    if (next.base) node.references.push_back({*next.base, true});
    const std::optional<std::uint64_t> coded = next.shares.earlier ? next.shares.earlier : next.shares.later;
    node.coded_share = coded;
    if (coded) node.coded_age = next.shares.remembered_age ? *next.shares.remembered_age + 1 : 0;
    written_ = node.bytes;
    nodes_.push_back(std::move(node));
    pattern_ = next.pattern;
    peak_ = held();
    prune();
  }

  [[nodiscard]] std::uint64_t held() const {
    std::uint64_t bytes = 0;
    for (const StepNode& node : nodes_) bytes += node.bytes;
    return bytes;
  }
  // Of the last save.
  [[nodiscard]] std::uint64_t peak() const noexcept { return peak_; }
  [[nodiscard]] std::uint64_t written() const noexcept { return written_; }
  [[nodiscard]] const CodingPattern& pattern() const noexcept { return pattern_; }

 private:
  struct Next {
    CodingShares shares;
    CodingPattern pattern;
    std::optional<std::uint64_t> base;
  };

  // What the next checkpoint is coded against.
  [[nodiscard]] Next choose_next() const {
    Next next;
    if (nodes_.empty() || max_depth_ == 0) return next;
    std::vector<StepNode> with_next = nodes_;
    with_next.emplace_back().step = newest_ + 1;
    std::vector<std::uint64_t> kept = plan_retention(with_next, retention_).kept;
    next.shares = shares_of(nodes_);
    next.pattern = choose_pattern(next.shares, kept.size());
    kept.pop_back();
    next.base = choose_base(nodes_, kept, next.pattern);
    return next;
  }

  void prune() {
    const std::optional<std::uint64_t> next_base = choose_next().base;
    RetentionPlan plan = plan_retention(nodes_, retention_, next_base);
    const CodingPattern pattern = choose_pattern(shares_of(nodes_), plan.kept.size());
    const RecodingPlan recoding = plan_recoding(nodes_, plan, pattern, max_depth_, next_base);
    if (!recoding.is_empty()) {
      remove(plan.removed);
      recode(recoding);
      plan = plan_retention(nodes_, retention_,
                            next_base && recoding.dropped.contains(*next_base) ? std::nullopt : next_base);
    }
    remove(plan.removed);
    for (const RetentionPlan::Needed& needed : plan.needed) node_at(needed.step).state = StepState::retired;
  }

  // The old file stays until the new one is there.
  void recode(const RecodingPlan& recoding) {
    for (StepNode& node : std::views::reverse(nodes_)) {
      const auto onto = recoding.onto.find(node.step);
      const auto is_dropped = [&](const auto& reference) { return recoding.dropped.contains(reference.step); };
      if (onto == recoding.onto.end() && std::ranges::none_of(node.references, is_dropped)) continue;
      if (recoding.dropped.contains(node.step)) continue;
      const std::uint64_t before = node.bytes;
      std::uint64_t after = to_bytes(shares_of_step(node.step).alone);
      std::erase_if(node.references, is_dropped);
      if (onto != recoding.onto.end()) {
        after = coded_bytes(shares_of_step(node.step).later, onto->second - node.step);
        node.references = {{onto->second, false}};
      }
      peak_ = std::max(peak_, held() + after);
      written_ += after;
      // A file that would not shrink stays as it is.
      if (onto == recoding.onto.end() || after < before || !recoding.dropped.empty()) node.bytes = after;
    }
  }

  // The last checkpoint stands for all behind it.
  [[nodiscard]] const TrialShares& shares_of_step(std::uint64_t step) const {
    return shares_[static_cast<std::size_t>(std::min<std::uint64_t>(step, shares_.size()) - 1)];
  }

  void remove(const std::vector<std::uint64_t>& steps) {
    std::erase_if(nodes_, [&](const StepNode& node) { return std::ranges::binary_search(steps, node.step); });
  }

  StepNode& node_at(std::uint64_t step) { return *std::ranges::lower_bound(nodes_, step, {}, &StepNode::step); }

  const std::span<const TrialShares> shares_;  // by step from 1 on
  const std::uint32_t max_depth_;
  Retention retention_;
  std::vector<StepNode> nodes_;  // by step
  CodingPattern pattern_;
  std::uint64_t newest_ = 0;
  std::uint64_t peak_ = 0;
  std::uint64_t written_ = 0;
};

std::uint64_t to_units(double share) { return static_cast<std::uint64_t>(share * static_cast<double>(kShareUnit)); }

}  // namespace

void expect_farther(TrialShares& shares) {
  const CodingShares near{.alone = to_units(shares.alone), .earlier = to_units(shares.earlier.front()), .later = {}};
  for (std::size_t distance = shares.earlier.size() + 1; distance <= kFarthest; ++distance) {
    const double expected = static_cast<double>(earlier_share(near, distance)) / static_cast<double>(kShareUnit);
    const double more =
        expected - static_cast<double>(earlier_share(near, distance - 1)) / static_cast<double>(kShareUnit);
    shares.earlier.push_back(std::max(shares.earlier.back(), expected));
    shares.later.push_back(std::min(std::max(shares.later.back(), shares.alone), shares.later.back() + more));
  }
}

namespace {

Forecast play(std::span<const TrialShares> shares, std::uint64_t keep_last, std::uint32_t max_depth,
              std::uint64_t saves_before, std::uint64_t saves) {
  const std::uint64_t kept = std::min(keep_last, kMostPlayed);
  PlayedRun run(shares, kept, max_depth);
  for (std::uint64_t save = 0; save < saves_before; ++save) run.save();
  Forecast forecast;
  const double unit = static_cast<double>(kRawBytes);
  for (std::uint64_t save = 0; save < saves; ++save) {
    run.save();
    forecast.held += static_cast<double>(run.held()) / unit / static_cast<double>(saves);
    forecast.written += static_cast<double>(run.written()) / unit / static_cast<double>(saves);
    forecast.peak = std::max(forecast.peak, static_cast<double>(run.peak()) / unit);
  }
  forecast.pattern = run.pattern();
  const double more = forecast.held / static_cast<double>(kept) * static_cast<double>(keep_last - kept);
  forecast.held += more;
  forecast.peak += more;
  return forecast;
}

}  // namespace

Forecast forecast_retention(std::span<const TrialShares> shares, std::uint64_t keep_last, std::uint32_t max_depth) {
  const std::uint64_t before = std::min<std::uint64_t>(keep_last, shares.size()) - 1;
  return play(shares, std::min<std::uint64_t>(keep_last, shares.size()), max_depth, before, shares.size() - before);
}

Forecast forecast_long_run(const TrialShares& shares, std::uint64_t keep_last, std::uint32_t max_depth) {
  return play({&shares, 1}, keep_last, max_depth, 2 * std::min(keep_last, kMostPlayed) + 16, kCountedSaves);
}

Forecast forecast_chain(std::span<const TrialShares> shares, std::uint32_t max_depth, BaseRule rule) {
  Forecast forecast;
  for (std::size_t number = 0; number < shares.size(); ++number) {
    const std::uint64_t links = number % (std::uint64_t{max_depth} + 1);
    const std::uint64_t distance = rule == BaseRule::keyframe ? links : 1;
    const TrialShares& own = shares[number];
    const std::uint64_t bytes = links > 0    ? coded_bytes(own.earlier, distance)
                                : number > 0 ? to_bytes(own.keyframe)
                                             : to_bytes(own.alone);
    forecast.held += static_cast<double>(bytes) / static_cast<double>(kRawBytes);
  }
  forecast.peak = forecast.held;
  forecast.written = forecast.held / static_cast<double>(shares.size());
  return forecast;
}

std::size_t longest_distance(const CodingPattern& pattern) noexcept {
  return pattern.backwards || pattern.period < 2 ? 1 : static_cast<std::size_t>(pattern.period) - 1;
}

}  // namespace bitsnap::store
