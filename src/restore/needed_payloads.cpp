#include "restore/needed_payloads.hpp"

#include <algorithm>
#include <utility>

#include "container/chunk_table.hpp"
#include "restore/snapshot_impl.hpp"

namespace bitsnap::restore {
namespace {

constexpr std::uint64_t kTogetherBytes = std::uint64_t{128} << 20;
// Of others, chunks are read one by one.
constexpr std::size_t kMostFiles = 64;

}  // namespace

void NeededPayloads::add(const Snapshot::Impl& impl, std::size_t number, bool with_inputs) {
  if (impl.reader->file().has_requests()) add(impl, number, with_inputs, 0);
}

void NeededPayloads::add(const Snapshot::Impl& impl, std::size_t number, bool with_inputs, std::uint32_t depth) {
  if (with_inputs && impl.has_decoded()) return;  // most chunks are in memory, and the others are read alone
  File& file = files_[&impl];
  if (file.is_known.empty()) file.is_known.resize(impl.index().chunks.size());
  if (file.is_known[number]) return;
  file.is_known[number] = true;
  if (with_inputs && depth < impl.limits.chain_depth) add_inputs(impl, number, depth);
  const container::ChunkEntry& entry = impl.index().chunks[number];
  if (entry.stored_bytes > 0) file.ranges.push_back({entry.offset, entry.stored_bytes});
}

void NeededPayloads::add_inputs(const Snapshot::Impl& impl, std::size_t number, std::uint32_t depth) {
  const auto [stream, chunk] = impl.chunk_numbered(number);
  for (const std::uint8_t used : impl.entry(stream, chunk).inputs) {
    if (used == container::kNoInput) break;
    const container::StreamInput& input = impl.index().encoding.streams[stream].inputs[used];
    const Snapshot::Impl* holder = &impl;
    if (input.base) {
      const Result<std::shared_ptr<const Base>> base = impl.base(*input.base);
      const auto* const snapshot = base ? dynamic_cast<const Snapshot*>(base->get()) : nullptr;
      if (snapshot == nullptr || input.stream >= snapshot->streams().size()) continue;
      holder = &Snapshot::Impl::of(*snapshot);
      if (std::ranges::find(bases_, *base) == bases_.end()) bases_.push_back(*base);
    }
    const auto source = static_cast<std::size_t>(input.stream);
    const container::ChunkRange range = container::touched_chunks(input, impl.stream(stream), chunk);
    for (std::uint64_t at = range.first; at <= range.last && holder->has_chunk(source, at); ++at) {
      add(*holder, static_cast<std::size_t>(holder->index().streams.first_chunk[source] + at), true, depth + 1);
    }
  }
}

ReadsAhead::ReadsAhead(NeededPayloads needed) : bases_(std::move(needed.bases_)) {
  const std::uint64_t most_bytes = kTogetherBytes / std::clamp<std::size_t>(needed.files_.size(), 1, kMostFiles);
  for (auto& [impl, file] : needed.files_) {
    if (reads_.size() == kMostFiles) break;
    if (auto reads = impl->reader->file().read_ahead(file.ranges, most_bytes)) {
      reads_.push_back(std::move(reads));
    }
  }
}

}  // namespace bitsnap::restore
