// What a run with a retention codes its checkpoints against, so that it holds no more than its checkpoints would take
// as standalone files (docs/decisions/0024-retention-decides-the-coding.md). Pure functions of sizes and references;
// they touch no file.
//
// A new checkpoint is standalone or coded against a standalone one before it, so that reading it follows one link at
// most. When a step that others are coded against goes, these are coded against the next later checkpoint instead.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "store/retention_plan.hpp"

namespace bitsnap::store {

// What recent checkpoints take, in kShareUnit of their raw bytes. nullopt: not known yet.
struct CodingShares {
  std::optional<std::uint64_t> alone;    // standalone
  std::optional<std::uint64_t> earlier;  // coded against an earlier checkpoint, the next one if possible
  std::optional<std::uint64_t> later;    // coded against a later one
  // If neither was seen, `later` is what a record remembers, and this is the number of checkpoints since it was seen.
  std::optional<std::uint32_t> remembered_age = {};

  friend bool operator==(const CodingShares&, const CodingShares&) = default;
};
inline constexpr std::uint64_t kShareUnit = 1 << 16;
[[nodiscard]] std::uint64_t share_of(std::uint64_t bytes, std::uint64_t raw_bytes);

// Of the newest checkpoints of each kind. Precondition, here and below: `nodes` are in order of steps.
[[nodiscard]] CodingShares shares_of(const std::vector<StepNode>& nodes);

// What a checkpoint takes, in kShareUnit of its raw bytes, if it is coded against the one `distance` before it, or
// against the next one. An estimate from what is known, never more than a standalone one takes.
[[nodiscard]] std::uint64_t earlier_share(const CodingShares& shares, std::uint64_t distance);
[[nodiscard]] std::uint64_t later_share(const CodingShares& shares);

// How checkpoints follow one another. Of `period` new ones, the first is standalone, and the others are coded against
// it. If `backwards`, all new ones are standalone, and each is coded against the next one when that is there.
struct CodingPattern {
  std::uint64_t period = 1;
  bool backwards = false;

  friend bool operator==(const CodingPattern&, const CodingPattern&) = default;
};

// What a pattern costs per checkpoint in the long run, in kShareUnit of the raw bytes, if `kept` are kept.
struct PatternCost {
  std::uint64_t held = 0;     // mean bytes of a kept checkpoint
  std::uint64_t written = 0;  // for each new checkpoint, with what is written again
  std::uint64_t peak = 0;     // the most bytes of all while a checkpoint is saved
};
[[nodiscard]] PatternCost cost_of(const CodingPattern& pattern, const CodingShares& shares, std::uint64_t kept);

// The pattern that holds least among those that write at most 1.45 times a standalone checkpoint for each new one, and
// that hold at no moment more than the raw bytes of the kept checkpoints and one more. As long as it is not known what
// coding against another checkpoint takes, the backward pattern, which is safe for any.
[[nodiscard]] CodingPattern choose_pattern(const CodingShares& shares, std::uint64_t kept);

// The standalone step that the next checkpoint is coded against; nullopt: none. `kept` are the steps that stay when it
// is committed, without itself, ascending.
[[nodiscard]] std::optional<std::uint64_t> choose_base(const std::vector<StepNode>& nodes,
                                                       const std::vector<std::uint64_t>& kept,
                                                       const CodingPattern& pattern);

// What a prune writes again.
struct RecodingPlan {
  std::set<std::uint64_t> dropped;              // nothing refers to these afterwards
  std::map<std::uint64_t, std::uint64_t> onto;  // by step: the later step that it is coded against

  [[nodiscard]] bool is_empty() const noexcept { return dropped.empty() && onto.empty(); }
};

// Drops the needed steps of `plan` if the run would otherwise hold more than its kept checkpoints would take as
// standalone files, or if that frees an eighth of what it writes and `next_base` is not among them. With a backward
// pattern, codes kept checkpoints against the next later one. No chunk becomes deeper than `max_depth`; with 0, nothing
// is coded against another step.
[[nodiscard]] RecodingPlan plan_recoding(const std::vector<StepNode>& nodes, const RetentionPlan& plan,
                                         const CodingPattern& pattern, std::uint32_t max_depth,
                                         std::optional<std::uint64_t> next_base = std::nullopt);

}  // namespace bitsnap::store
