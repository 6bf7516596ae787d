// LiveChunks: walks the chunk tables of snapshots.
#include "store/live_bytes.hpp"

#include <vector>

#include "container/chunk_table.hpp"
#include "restore/chunk_groups.hpp"
#include "restore/snapshot_impl.hpp"

namespace bitsnap::store {

void LiveChunks::note(const Snapshot& snapshot, const ShardFile& file, const std::set<std::uint64_t>& targets) {
  const container::Index& index = Snapshot::Impl::of(snapshot).index();
  const auto& streams = index.streams.streams;
  for (std::size_t stream = 0; stream < streams.size(); ++stream) {
    const auto& inputs = index.encoding.streams[stream].inputs;
    for (std::uint64_t chunk = 0; chunk < streams[stream].chunk_count(); ++chunk) {
      const container::ChunkEntry& entry =
          index.chunks[static_cast<std::size_t>(index.streams.first_chunk[stream] + chunk)];
      for (const std::uint8_t number : entry.inputs) {
        if (number == container::kNoInput || !inputs[number].base) continue;
        if (*inputs[number].base >= file.references.size()) continue;
        const StepReference& reference = file.references[*inputs[number].base];
        if (!targets.contains(reference.step)) continue;
        const container::ChunkRange range = container::touched_chunks(inputs[number], streams[stream], chunk);
        for (std::uint64_t at = range.first; at <= range.last; ++at) {
          chunks_[{reference.step, reference.shard}].emplace(inputs[number].stream, at);
        }
      }
    }
  }
}

std::uint64_t LiveChunks::bytes(std::uint64_t step, std::uint32_t shard, const Snapshot& snapshot) const {
  const auto found = chunks_.find({step, shard});
  if (found == chunks_.end()) return 0;
  const container::Index& index = Snapshot::Impl::of(snapshot).index();
  std::uint64_t bytes = 0;
  std::set<Chunk> needed;
  std::vector<Chunk> pending(found->second.begin(), found->second.end());
  while (!pending.empty()) {
    const Chunk next = pending.back();
    pending.pop_back();
    const auto [stream, chunk] = next;
    if (stream >= index.streams.streams.size() || chunk >= index.streams.streams[stream].chunk_count()) continue;
    if (!needed.insert(next).second) continue;
    bytes += index.chunks[static_cast<std::size_t>(index.streams.first_chunk[stream] + chunk)].stored_bytes;
    restore::for_each_peer(index, static_cast<std::size_t>(stream), chunk,
                           [&](std::size_t peer, std::uint64_t at) { pending.emplace_back(peer, at); });
  }
  return bytes;
}

}  // namespace bitsnap::store
