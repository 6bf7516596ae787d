// The plan of a prune: marks what stays, and follows references from there.
#include "store/retention_plan.hpp"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"

namespace bitsnap::store {
namespace {

bool is_asked_for(const StepNode& node, std::size_t newer, const Retention& retention) {
  return (retention.keep_last && newer < *retention.keep_last) ||
         (retention.keep_every && node.step % *retention.keep_every == 0) ||
         (retention.keep_labelled && node.is_labelled) ||
         std::ranges::find(retention.keep, node.step) != retention.keep.end();
}

// Follows references from the kept steps, without recursion.
class Marking {
 public:
  explicit Marking(const std::vector<StepNode>& nodes) {
    for (const StepNode& node : nodes) nodes_.emplace(node.step, &node);
  }

  void mark(std::uint64_t step) {
    pending_.emplace_back(step, step);
    while (!pending_.empty()) {
      const auto [at, by] = pending_.back();
      pending_.pop_back();
      follow(at, by);
    }
  }

  struct Mark {
    std::uint64_t by = 0;   // the first marked step that needs it
    bool followed = false;  // what it refers to is marked, too
  };

  // Returns nullptr if nobody needs the step.
  [[nodiscard]] const Mark* find(std::uint64_t step) const {
    const auto found = marks_.find(step);
    return found == marks_.end() ? nullptr : &found->second;
  }

 private:
  void follow(std::uint64_t step, std::uint64_t by) {
    const auto found = nodes_.find(step);
    if (found == nodes_.end()) return;
    Mark& mark = marks_.try_emplace(step, Mark{by, false}).first->second;
    if (mark.followed) return;
    mark.followed = true;
    // Nobody refers to a step that was never committed. So without waiting shards, this step has lost its record.
    const StepNode& node = *found->second;
    const bool has_lost_record = node.state == StepState::uncommitted && node.references.empty();
    if (node.is_damaged || has_lost_record) {
      for (const auto& [other, ignored] : nodes_) {
        if (other != step) pending_.emplace_back(other, by);
      }
      return;
    }
    for (const StepNode::Reference& reference : node.references) {
      if (reference.standalone) {
        if (nodes_.contains(reference.step)) marks_.try_emplace(reference.step, Mark{by, false});
      } else {
        pending_.emplace_back(reference.step, by);
      }
    }
  }

  std::map<std::uint64_t, const StepNode*> nodes_;
  std::map<std::uint64_t, Mark> marks_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pending_;
};

// Divides the steps into those of `kept`, which are ascending, those that they need, and the others.
RetentionPlan plan_without_others(const std::vector<StepNode>& nodes, std::vector<std::uint64_t> kept,
                                  std::optional<std::uint64_t> next_base) {
  RetentionPlan plan;
  plan.kept = std::move(kept);
  Marking marking(nodes);
  for (const std::uint64_t step : std::views::reverse(plan.kept)) marking.mark(step);
  if (next_base) marking.mark(*next_base);
  for (const StepNode& node : nodes) {
    if (node.state == StepState::uncommitted && !node.references.empty()) marking.mark(node.step);
  }
  for (const StepNode& node : nodes) {
    if (node.state == StepState::uncommitted) continue;
    if (std::ranges::binary_search(plan.kept, node.step)) continue;
    if (const Marking::Mark* const mark = marking.find(node.step)) {
      plan.needed.push_back({node.step, mark->by, mark->followed});
    } else {
      plan.removed.push_back(node.step);
    }
  }
  return plan;
}

}  // namespace

RetentionPlan plan_retention(const std::vector<StepNode>& nodes, const Retention& retention,
                             std::optional<std::uint64_t> next_base) {
  std::vector<std::uint64_t> kept;
  std::size_t newer = 0;
  for (const StepNode& node : std::views::reverse(nodes)) {
    if (node.state != StepState::committed) continue;
    // A damaged checkpoint is left to a repair. Neither does it count as one of the `keep_last` newest, nor does one
    // that a repair has kept as damaged.
    if (newer == 0 || node.is_damaged || is_asked_for(node, newer, retention)) kept.push_back(node.step);
    if (!node.is_damaged && !node.is_kept_as_damaged) ++newer;
  }
  std::ranges::reverse(kept);
  return plan_without_others(nodes, std::move(kept), next_base);
}

std::vector<std::uint64_t> removal_order(const std::vector<StepNode>& nodes, const std::vector<std::uint64_t>& steps) {
  std::map<std::uint64_t, std::vector<std::uint64_t>> referring;  // by the step that is referred to
  const std::set<std::uint64_t> all(steps.begin(), steps.end());
  for (const StepNode& node : nodes) {
    if (!all.contains(node.step)) continue;
    for (const StepNode::Reference& reference : node.references) referring[reference.step].push_back(node.step);
  }
  std::vector<std::uint64_t> order;
  std::set<std::uint64_t> begun;
  for (const std::uint64_t newest : std::views::reverse(all)) {
    // Each step is looked at twice: before the steps that refer to it, and after them.
    std::vector<std::pair<std::uint64_t, bool>> pending = {{newest, false}};
    while (!pending.empty()) {
      const auto [step, is_ready] = pending.back();
      pending.pop_back();
      if (is_ready) order.push_back(step);
      if (is_ready || !begun.insert(step).second) continue;
      pending.emplace_back(step, true);
      for (const std::uint64_t other : referring[step]) pending.emplace_back(other, false);
    }
  }
  return order;
}

RetentionPlan plan_removal(const std::vector<StepNode>& nodes, const std::vector<std::uint64_t>& removed,
                           std::optional<std::uint64_t> next_base) {
  std::vector<std::uint64_t> kept;
  for (const StepNode& node : nodes) {
    const bool is_kept = node.state == StepState::committed && !std::ranges::binary_search(removed, node.step);
    if (is_kept) kept.push_back(node.step);
  }
  return plan_without_others(nodes, std::move(kept), next_base);
}

}  // namespace bitsnap::store

namespace bitsnap {

Result<void> check_retention(const Retention& retention) {
  for (const auto& [field, number] :
       {std::pair("keep_last", retention.keep_last), {"keep_every", retention.keep_every}}) {
    if (number != 0U) continue;
    return tl::unexpected(
        Error(ErrorKind::invalid_argument, fmt::format("{} must be at least 1, got 0", field)).about(field));
  }
  return {};
}

}  // namespace bitsnap
