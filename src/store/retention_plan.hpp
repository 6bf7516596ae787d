// The plan of a prune: which checkpoints are kept, which are needed by others, and which are removed. A pure function
// of the references; it touches no file.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <bitsnap/store.hpp>

#include "store/step_directories.hpp"

namespace bitsnap::store {

// A step, with the steps that its files refer to.
struct StepNode {
  struct Reference {
    std::uint64_t step = 0;
    bool standalone = false;
  };
  std::uint64_t step = 0;
  StepState state = StepState::committed;
  std::uint64_t bytes = 0;
  std::uint64_t raw_bytes = 0;  // of its tensors
  std::vector<Reference> references;
  std::optional<std::uint64_t> coded_share = {};  // both as in the commit record
  std::uint32_t coded_age = 0;
  bool is_labelled = false;
  bool is_damaged = false;  // its record cannot be read: counts as if it referred to every other step
  bool is_kept_as_damaged = false;
};

struct RetentionPlan {
  struct Needed {
    std::uint64_t step = 0;
    std::uint64_t by = 0;
    bool whole = false;  // what it refers to is needed, too; if false, only its own chunks
  };
  std::vector<std::uint64_t> kept;     // all three lists are ascending
  std::vector<Needed> needed;          // not kept, but referred to
  std::vector<std::uint64_t> removed;  // neither kept nor needed
};

// `nodes` are in order of steps. The newest undamaged checkpoint is always kept, and so are all damaged ones; retired
// ones are never kept. Those that are kept as damaged go with the undamaged ones beside them. Uncommitted steps are
// neither kept nor removed, but what they refer to is needed. `next_base` and what it refers to are needed, too.
[[nodiscard]] RetentionPlan plan_retention(const std::vector<StepNode>& nodes, const Retention& retention,
                                           std::optional<std::uint64_t> next_base = std::nullopt);

// Steps in an order in which each comes after those of them that refer to it, and otherwise the newest first.
[[nodiscard]] std::vector<std::uint64_t> removal_order(const std::vector<StepNode>& nodes,
                                                       const std::vector<std::uint64_t>& steps);

// The plan of removing the steps `removed`, in ascending order: every other checkpoint is kept.
[[nodiscard]] RetentionPlan plan_removal(const std::vector<StepNode>& nodes, const std::vector<std::uint64_t>& removed,
                                         std::optional<std::uint64_t> next_base = std::nullopt);

}  // namespace bitsnap::store
