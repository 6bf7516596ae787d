// How much of the files that are kept for others is really read by them: what decides whether rewriting pays.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

#include "store/commit_record.hpp"

namespace bitsnap::store {

// Gathers, file by file, which chunks others refer to.
class LiveChunks {
 public:
  // Notes all chunks that `file`, open as `snapshot`, refers to in one of `targets`.
  void note(const Snapshot& snapshot, const ShardFile& file, const std::set<std::uint64_t>& targets);

  // Stored bytes of the noted chunks of one file, and of those of the same file that they are coded against.
  [[nodiscard]] std::uint64_t bytes(std::uint64_t step, std::uint32_t shard, const Snapshot& snapshot) const;

 private:
  using Chunk = std::pair<std::uint64_t, std::uint64_t>;                       // stream, chunk
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::set<Chunk>> chunks_;  // by step and shard
};

}  // namespace bitsnap::store
