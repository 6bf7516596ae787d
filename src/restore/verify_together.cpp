// Works batch by batch: the same chunks of all snapshots, one snapshot after another, while they are cached.
#include "restore/verify_together.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/chunk_table.hpp"
#include "restore/chunk_groups.hpp"
#include "restore/needed_payloads.hpp"
#include "restore/run_control.hpp"
#include "restore/verify_chunk.hpp"

namespace bitsnap::restore {
namespace {

// Cache shares: for one batch of a snapshot and one of the snapshot before.
constexpr std::size_t kCacheShares = 2;

struct Found {
  std::size_t snapshot = 0;
  std::size_t chunk = 0;  // its number in the file
  Error error;
};

// The streams of all snapshots, where those of the same tensor count as one, and their chunks in an order in which each
// comes after what it needs in any snapshot.
class Columns {
 public:
  explicit Columns(std::span<const std::shared_ptr<const Snapshot>> snapshots) : snapshots_(snapshots) {
    std::map<std::string, std::size_t> numbers;  // by the tensor's name; of the pool, which no tensor has, by " "
    for (std::size_t i = 0; i < snapshots.size(); ++i) {
      const container::Index& index = impl(i).index();
      const std::span<const StreamInfo> streams = snapshots[i]->streams();
      column_of_.emplace_back();
      for (std::size_t stream = 0; stream < streams.size(); ++stream) {
        const std::string name =
            streams[stream].tensor ? "t" + snapshots[i]->tensors()[*streams[stream].tensor].name : " ";
        const auto [known, is_new] = numbers.emplace(name, columns_.size());
        if (is_new) {
          columns_.emplace_back();
          streams_.emplace_back(snapshots.size());
        }
        const std::size_t column = known->second;
        columns_[column].rank = std::max<std::uint32_t>(columns_[column].rank, index.encoding.streams[stream].rank);
        columns_[column].chunks = std::max(columns_[column].chunks, streams[stream].chunk_count());
        streams_[column][i] = stream;
        column_of_.back().push_back(column);
      }
    }
    std::size_t first = 0;
    for (const OrderedStream& column : columns_) {
      first_.push_back(first);
      first += static_cast<std::size_t>(column.chunks);
    }
    groups_.emplace(columns_, [this](std::size_t column, std::uint64_t chunk, ChunkGroups::NeededChunk needed) {
      for (std::size_t i = 0; i < snapshots_.size(); ++i) {
        const std::optional<std::size_t> stream = streams_[column][i];
        if (!stream || !impl(i).has_chunk(*stream, chunk)) continue;
        for_each_peer(impl(i).index(), *stream, chunk,
                      [&](std::size_t other, std::uint64_t at) { needed(column_of_[i][other], at); });
      }
    });
  }

  [[nodiscard]] const Snapshot::Impl& impl(std::size_t snapshot) const {
    return Snapshot::Impl::of(*snapshots_[snapshot]);
  }
  [[nodiscard]] std::size_t batches() const noexcept { return groups_->batches(); }

  // All payloads, in the order of the batches.
  [[nodiscard]] NeededPayloads payloads() const {
    NeededPayloads needed;
    for (std::size_t batch = 0; batch < batches(); ++batch) {
      static_cast<void>(for_each(batch, [&](std::size_t i, std::size_t stream, std::uint64_t chunk) -> Result<void> {
        needed.add(impl(i), static_cast<std::size_t>(impl(i).index().streams.first_chunk[stream] + chunk), false);
        return {};
      }));
    }
    return needed;
  }

  // Calls `action` with snapshot, stream and chunk for all chunks of a batch until one call fails.
  template <typename Action>
  Result<void> for_each(std::size_t batch, const Action& action) const {
    const auto [begin, end] = groups_->batch(batch);
    for (std::size_t i = 0; i < snapshots_.size(); ++i) {
      for (std::size_t place = begin; place < end; ++place) {
        const std::size_t number = groups_->chunk_at(place);
        const auto column = static_cast<std::size_t>(std::ranges::upper_bound(first_, number) - first_.begin()) - 1;
        const std::optional<std::size_t> stream = streams_[column][i];
        const std::uint64_t chunk = number - first_[column];
        if (stream && impl(i).has_chunk(*stream, chunk)) BITSNAP_TRY(action(i, *stream, chunk));
      }
    }
    return {};
  }

 private:
  std::span<const std::shared_ptr<const Snapshot>> snapshots_;
  std::vector<OrderedStream> columns_;
  std::vector<std::vector<std::optional<std::size_t>>> streams_;  // by column and snapshot
  std::vector<std::vector<std::size_t>> column_of_;               // by snapshot and stream
  std::vector<std::size_t> first_;                                // by column: the number of its first chunk
  std::optional<ChunkGroups> groups_;
};

}  // namespace

Result<std::vector<std::vector<Damage>>> verify_together(std::span<const std::shared_ptr<const Snapshot>> snapshots,
                                                         const RunOptions& options) {
  return no_throw("verify", [&]() -> Result<std::vector<std::vector<Damage>>> {
    const Columns columns(snapshots);
    std::uint64_t total = 0;
    for (const std::shared_ptr<const Snapshot>& snapshot : snapshots) {
      for (const StreamInfo& info : snapshot->streams()) total += info.elements * element_size(info.dtype);
    }

    const ReadsAhead ahead(columns.payloads());
    const DecodeLimits limits;
    RunControl control(options, limits, total, kCacheShares);
    std::vector<std::vector<Found>> found_by(control.slots());
    std::vector<std::vector<Found>> found(snapshots.size());
    const auto work = [&](std::size_t item, std::size_t slot) -> Result<void> {
      control.context(slot).forget();
      found_by[slot].clear();
      return columns.for_each(item, [&](std::size_t snapshot, std::size_t stream, std::uint64_t chunk) -> Result<void> {
        BITSNAP_TRY(control.check_cancelled());
        const Snapshot::Impl& impl = columns.impl(snapshot);
        ReadContext& context = control.context(slot);
        context.expect_again(snapshot + 1 < snapshots.size() ? ReadContext::Expected::all
                                                             : ReadContext::Expected::peers);
        Result<void> verified = verify_chunk(impl, stream, chunk, true, context);
        if (verified) return {};
        if (ends_verification(verified.error())) return verified;
        const std::uint64_t number = impl.index().streams.first_chunk[stream] + chunk;
        found_by[slot].push_back({snapshot, static_cast<std::size_t>(number), std::move(verified).error()});
        return {};
      });
    };
    const auto commit = [&](std::size_t item, std::size_t slot) -> Result<void> {
      for (Found& one : found_by[slot]) found[one.snapshot].push_back(std::move(one));
      return columns.for_each(item, [&](std::size_t snapshot, std::size_t stream, std::uint64_t chunk) -> Result<void> {
        control.add(columns.impl(snapshot).chunk_bytes(stream, chunk));
        return {};
      });
    };
    BITSNAP_TRY(control.executor().run_ordered(columns.batches(), control.slots(), work, commit, &control.cancel()));

    std::vector<std::vector<Damage>> damages(snapshots.size());
    for (std::size_t i = 0; i < snapshots.size(); ++i) {
      const container::Index& index = columns.impl(i).index();
      std::ranges::sort(found[i], {}, &Found::chunk);
      for (Found& one : found[i]) {
        const auto [stream, chunk] = columns.impl(i).chunk_numbered(one.chunk);
        damages[i].push_back(
            Damage{container::chunk_place(index.content, index.streams.streams[stream], chunk), std::move(one.error)});
      }
    }
    return damages;
  });
}

}  // namespace bitsnap::restore
