// Checks weights against patches, decodes what changes in them, and writes it. Patch and StagedPatch are made of this.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <bitsnap/patch.hpp>

#include "exec/executor.hpp"
#include "patch/patch_target.hpp"

namespace bitsnap::patch {

// One patch, staged.
struct StagedPart {
  std::shared_ptr<const OpenedPatch> patch;
  Targets targets;
  std::vector<StagedSlab> slabs;  // one per slab of the patch
};

// Stages patches that follow one another. Reads the weights, and writes nothing.
[[nodiscard]] Result<std::vector<StagedPart>> stage_parts(std::span<const std::shared_ptr<const OpenedPatch>> patches,
                                                          const WeightTable& weights, Verify verify,
                                                          exec::Executor& executor);

[[nodiscard]] Result<PatchState> state_of_weights(const OpenedPatch& patch, const WeightTable& weights,
                                                  exec::Executor& executor);

// Writes one staged patch to the weights.
void write_part(const StagedPart& part, exec::Executor& executor);

// What the patches together change in the tensor with this name; not_found if no patch has it.
[[nodiscard]] Result<StagedPatch::Changes> changes_of(std::span<const StagedPart> parts, const std::string& tensor);

}  // namespace bitsnap::patch
