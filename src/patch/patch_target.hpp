// The weights that a patch is applied to: which memory each of its tensors is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "patch/opened_patch.hpp"
#include "patch/slab_decode.hpp"
#include "patch/weight_table.hpp"

namespace bitsnap::patch {

struct TargetTensor {
  std::byte* memory = nullptr;
  std::vector<std::byte*> copies;  // tied in the patch, but memory of its own here

  [[nodiscard]] bool has(const std::byte* own) const noexcept {
    return own == memory || std::ranges::find(copies, own) != copies.end();
  }
  [[nodiscard]] std::vector<std::byte*> all() const {
    std::vector<std::byte*> memories{memory};
    memories.insert(memories.end(), copies.begin(), copies.end());
    return memories;
  }
};

using Targets = std::vector<TargetTensor>;

// One per tensor of the patch. not_found, or invalid_argument, as Patch::stage() says.
[[nodiscard]] Result<Targets> find_targets(const OpenedPatch& patch, const WeightTable& weights);

// Slabs of the weights as they are, or as they would be after the patches that were staged before.
class SlabReader {
 public:
  // An earlier patch and what was staged of it.
  struct Layer {
    const OpenedPatch* patch = nullptr;
    std::map<const std::byte*, std::size_t> tensors;  // its tensors, by the memory that they are here
    std::span<const StagedSlab> slabs;
  };

  SlabReader(const OpenedPatch& patch, std::span<const TargetTensor> targets, std::span<const Layer> layers) noexcept
      : patch_(patch), targets_(targets), layers_(layers) {}

  // The pieces of a slab and their bytes: in place, or copied to `scratch` if a layer lies above them.
  struct Read {
    std::vector<Piece> pieces;
    std::vector<ConstByteSpan> bytes;
    SlabMemory memory;                  // of the two
    std::optional<std::size_t> untied;  // a tensor that is tied in the patch, and whose copies here differ from it
  };
  [[nodiscard]] Result<void> read(std::uint64_t slab, Scratch& scratch, Read& to) const;

 private:
  [[nodiscard]] Result<ConstByteSpan> read_piece(const Piece& piece, std::size_t element_bytes, const std::byte* memory,
                                                 Scratch& scratch) const;

  const OpenedPatch& patch_;
  const std::span<const TargetTensor> targets_;
  const std::span<const Layer> layers_;
};

[[nodiscard]] std::uint64_t hash_slab(std::span<const ConstByteSpan> pieces);

}  // namespace bitsnap::patch
