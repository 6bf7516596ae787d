// Which checkpoints stay, which are only needed, which can go: a pure function of what refers to what.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <bitsnap/store.hpp>

#include "store/step_directories.hpp"

namespace bitsnap::store {

// One step, with what its files refer to.
struct StepNode {
  struct Reference {
    std::uint64_t step = 0;
    bool standalone = false;
  };
  std::uint64_t step = 0;
  StepState state = StepState::committed;
  std::uint64_t bytes = 0;
  std::vector<Reference> references;
  bool is_damaged = false;  // its record cannot be read: it may refer to anything before it
};

struct RetentionPlan {
  struct Needed {
    std::uint64_t step = 0;
    std::uint64_t by = 0;
    bool whole = false;  // and so is all that it refers to; otherwise only what it holds by itself
  };
  std::vector<std::uint64_t> kept;     // ascending, as the others
  std::vector<Needed> needed;          // not kept, but referred to
  std::vector<std::uint64_t> removed;  // not kept, not needed
};

// `nodes` by step; those that are uncommitted are neither kept nor removed. The newest committed one whose record can
// be read is always kept, and so are those whose records cannot; retired ones never are.
// `next_base` and what it refers to are needed besides, and so is what uncommitted steps refer to.
[[nodiscard]] RetentionPlan plan_retention(const std::vector<StepNode>& nodes, const Retention& retention,
                                           std::optional<std::uint64_t> next_base = std::nullopt);

}  // namespace bitsnap::store
