// The labels of a copy that follows a run: docs/spec/store.md, "Mirrors". No state; any thread.
#pragma once

#include <cstdint>
#include <set>

#include <bitsnap/error.hpp>

#include "store/label_record.hpp"
#include "store/mirror_order.hpp"
#include "store/step_directories.hpp"

namespace bitsnap::store {

// The labels of the run, and those of the copy that name checkpoints which the run does not have, unless the run has a
// label of that name. `there`: the records of the copy. `lost`: steps that are damaged in the run, whose labels it may
// still have.
[[nodiscard]] LabelRecord merge_labels(const LabelRecord& run, const LabelRecord& copy, const MirroredSteps& there,
                                       const std::set<std::uint64_t>& steps_of_run,
                                       const std::set<std::uint64_t>& lost);

// Gives a checkpoint of the copy the labels that it has in the run, except those that name another one in the copy.
[[nodiscard]] Result<void> bring_labels(std::uint64_t step, StepDirectories& run, StepDirectories& copy);

}  // namespace bitsnap::store
