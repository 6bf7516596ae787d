// Column by column: the same chunk of all snapshots, one after another, with what was just decoded at hand.
#include "restore/verify_together.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/chunk_table.hpp"
#include "restore/decoded_chunks.hpp"
#include "restore/run_control.hpp"
#include "restore/verify_chunk.hpp"

namespace bitsnap::restore {
namespace {

// A stream of one of the snapshots.
struct Place {
  std::size_t snapshot = 0;
  std::size_t stream = 0;
};

// Chunk `chunk` of all streams that hold the same tensor.
struct Column {
  std::size_t group = 0;
  std::uint64_t chunk = 0;
};

struct Found {
  std::size_t snapshot = 0;
  std::size_t stream = 0;
  std::uint64_t chunk = 0;
  Error error;
};

// For each snapshot one chunk of at most 2 MiB, and what some of them depend on besides.
constexpr std::uint64_t kCacheBytesPerSnapshot = 3 << 20;

}  // namespace

Result<std::vector<std::vector<Damage>>> verify_together(std::span<const std::shared_ptr<const Snapshot>> snapshots,
                                                         const RunOptions& options) {
  return no_throw("verify", [&]() -> Result<std::vector<std::vector<Damage>>> {
    std::vector<std::vector<Damage>> damages(snapshots.size());
    std::vector<std::vector<Place>> groups;
    std::map<std::string, std::size_t> group_of;  // by the tensor's name; of the pool, which no tensor has, by " "
    std::uint64_t total = 0;
    std::vector<Column> columns;
    for (std::size_t i = 0; i < snapshots.size(); ++i) {
      const std::span<const StreamInfo> streams = snapshots[i]->streams();
      for (std::size_t stream = 0; stream < streams.size(); ++stream) {
        const std::string name =
            streams[stream].tensor ? "t" + snapshots[i]->tensors()[*streams[stream].tensor].name : " ";
        const auto [known, is_new] = group_of.emplace(name, groups.size());
        if (is_new) groups.emplace_back();
        groups[known->second].push_back({i, stream});
        total += streams[stream].elements * element_size(streams[stream].dtype);
      }
    }
    for (std::size_t group = 0; group < groups.size(); ++group) {
      std::uint64_t chunks = 0;
      for (const Place& place : groups[group]) {
        chunks = std::max(chunks, snapshots[place.snapshot]->streams()[place.stream].chunk_count());
      }
      for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) columns.push_back({group, chunk});
    }

    const DecodeLimits limits;
    RunControl control(options, limits, total);
    std::vector<std::unique_ptr<DecodedChunks>> caches(control.slots());
    std::vector<std::vector<Found>> found(control.slots());
    const auto work = [&](std::size_t item, std::size_t slot) -> Result<void> {
      const Column& column = columns[item];
      if (!caches[slot]) caches[slot] = std::make_unique<DecodedChunks>(snapshots.size() * kCacheBytesPerSnapshot);
      caches[slot]->clear();
      found[slot].clear();
      for (const Place& place : groups[column.group]) {
        const Snapshot::Impl& impl = SnapshotAccess::impl(*snapshots[place.snapshot]);
        if (!impl.has_chunk(place.stream, column.chunk)) continue;
        ReadContext& context = control.context(slot);
        context.use_cache(caches[slot].get());
        Result<void> verified = verify_chunk(impl, place.stream, column.chunk, true, context);
        context.use_cache(nullptr);
        if (verified) continue;
        if (ends_verification(verified.error())) return verified;
        found[slot].push_back({place.snapshot, place.stream, column.chunk, std::move(verified).error()});
      }
      return {};
    };
    const auto commit = [&](std::size_t item, std::size_t slot) -> Result<void> {
      for (Found& one : found[slot]) {
        const Snapshot::Impl& impl = SnapshotAccess::impl(*snapshots[one.snapshot]);
        damages[one.snapshot].push_back(Damage{
            container::chunk_place(impl.index().content, impl.stream(one.stream), one.chunk), std::move(one.error)});
      }
      const Column& column = columns[item];
      for (const Place& place : groups[column.group]) {
        const Snapshot::Impl& impl = SnapshotAccess::impl(*snapshots[place.snapshot]);
        if (impl.has_chunk(place.stream, column.chunk)) control.add(impl.chunk_bytes(place.stream, column.chunk));
      }
      return {};
    };
    BITSNAP_TRY(control.executor().run_ordered(columns.size(), control.slots(), work, commit, &control.cancel()));
    return damages;
  });
}

}  // namespace bitsnap::restore
