// Opens all shards of a checkpoint that may be replaced while they are opened.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/store.hpp>

#include "base/try.hpp"

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

}  // namespace

Result<OpenedShards> open_all_shards(const Store& store, std::uint64_t step) {
  for (int tries = 0; tries < kMostTries; ++tries) {
    OpenedShards opened;
    BITSNAP_ASSIGN(opened.info, store.checkpoint(step));
    BITSNAP_ASSIGN(opened.snapshots, open_shards(store, opened.info));
    BITSNAP_ASSIGN(opened.tensors, store.tensors(step));
    if (opened.info.shards == 1) return opened;
    // Ids are random, and each shard is read by the commit record of its moment: if all of them are the same a second
    // time, then they were those of one record in between.
    BITSNAP_ASSIGN(const auto again, open_shards(store, opened.info));
    const auto is_same = [](const auto& first, const auto& second) { return first->id() == second->id(); };
    if (std::ranges::equal(opened.snapshots, again, is_same)) return opened;
  }
  return fail(ErrorKind::busy, fmt::format("{}: step {} is replaced again and again", store.path(), step));
}

}  // namespace bitsnap
