// Opens all shards of a checkpoint that may be replaced while they are opened.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/store.hpp>

#include "base/try.hpp"
#include "tensor/box.hpp"

namespace bitsnap {
namespace {

constexpr int kMostTries = 16;

Result<std::vector<std::shared_ptr<const Snapshot>>> open_shards(const Store& store, const Checkpoint& info) {
  std::vector<std::shared_ptr<const Snapshot>> opened;
  for (std::uint32_t shard = 0; shard < info.shards; ++shard) {
    BITSNAP_ASSIGN(opened.emplace_back(), store.snapshot(info.step, shard));
  }
  return opened;
}

// Whether the parts lie in the tensor and are what the shards hold: the tensor index is a file of its own.
bool has_its_parts(const OpenedShards& opened, const GlobalTensor& tensor) {
  return std::ranges::all_of(tensor.parts, [&](const TensorPart& part) {
    if (part.shard >= opened.snapshots.size()) return false;
    const auto held = opened.snapshots[part.shard]->tensors();
    return part.tensor < held.size() && held[part.tensor].shape == part.extent &&
           held[part.tensor].dtype_name == tensor.dtype_name &&
           tensor::lies_in({part.offset, part.extent}, tensor.shape);
  });
}

Result<void> check_parts(const OpenedShards& opened) {
  for (const GlobalTensor& tensor : *opened.tensors) {
    if (has_its_parts(opened, tensor)) continue;
    return fail(ErrorKind::corrupt, fmt::format("{}: the tensor index names parts of {} that the shards do not hold",
                                                opened.snapshots.front()->name(), tensor.name));
  }
  return {};
}

}  // namespace

Result<OpenedShards> open_all_shards(const Store& store, std::uint64_t step) {
  for (int tries = 0; tries < kMostTries; ++tries) {
    OpenedShards opened;
    BITSNAP_ASSIGN(opened.info, store.checkpoint(step));
    BITSNAP_ASSIGN(opened.snapshots, open_shards(store, opened.info));
    BITSNAP_ASSIGN(opened.tensors, store.tensors(step));
    if (opened.info.shards > 1) {
      // Ids are random, and each shard is read by the commit record of its moment: if all of them are the same a second
      // time, then they were those of one record in between.
      BITSNAP_ASSIGN(const auto again, open_shards(store, opened.info));
      const auto is_same = [](const auto& first, const auto& second) { return first->id() == second->id(); };
      if (!std::ranges::equal(opened.snapshots, again, is_same)) continue;
    }
    BITSNAP_TRY(check_parts(opened));
    return opened;
  }
  return fail(ErrorKind::busy, fmt::format("{}: step {} is replaced again and again", store.path(), step));
}

}  // namespace bitsnap
