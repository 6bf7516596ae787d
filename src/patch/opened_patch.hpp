// One patch of the bytes that Patch::open() was given, checked and taken apart. docs/spec/patch.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <bitsnap/patch.hpp>

#include "base/bytes.hpp"
#include "patch/patch_layout.hpp"

namespace bitsnap::patch {

struct SlabEntry {
  ConstByteSpan payload;  // empty: nothing changes
  std::uint32_t expected = 0;
  std::uint32_t result = 0;
};

struct OpenedPatch {
  Description description;
  SlabTable table;
  std::vector<SlabEntry> slabs;
  SnapshotId expected;
  SnapshotId result;
};

// The patch that `bytes` begin with; `size` gets its size.
[[nodiscard]] Result<OpenedPatch> open_patch(ConstByteSpan bytes, const DecodeLimits& limits, std::size_t& size);

}  // namespace bitsnap::patch
