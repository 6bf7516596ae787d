// LiveChunks: counts the bytes of a file that other files still read. From this a prune decides whether rewriting saves
// space. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

#include "store/commit_record.hpp"

namespace bitsnap::store {

// Gathers the chunks that other files refer to.
class LiveChunks {
 public:
  // Notes all chunks in the steps `targets` that `file` refers to. `snapshot` is the open file.
  void note(const Snapshot& snapshot, const ShardFile& file, const std::set<std::uint64_t>& targets);

  // Stored bytes of the noted chunks of one file, and of the chunks in the same file that these are coded against.
  [[nodiscard]] std::uint64_t bytes(std::uint64_t step, std::uint32_t shard, const Snapshot& snapshot) const;

 private:
  using Chunk = std::pair<std::uint64_t, std::uint64_t>;                       // stream, chunk
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::set<Chunk>> chunks_;  // by step and shard
};

}  // namespace bitsnap::store
