// The pipeline, and what of a chunk goes into the tables.
#include "save/snapshot_pipeline.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <bitsnap/version.hpp>

#include "base/try.hpp"
#include "codec/registry.hpp"
#include "container/chunk_table.hpp"
#include "container/json_text.hpp"
#include "quantize/update_errors.hpp"

namespace bitsnap::save {

SnapshotPipeline::SnapshotPipeline(container::Index& index, const PipelineParts& parts, os::WritableFile& file)
    : index_(index), parts_(parts), writer_(file) {}

Result<WriteSummary> SnapshotPipeline::run(exec::Executor& executor) {
  index_.encoding.writer = fmt::format("bitsnap {}", version());
  index_.encoding.policy = policy_name(parts_.settings.policy);
  index_.encoding.objective =
      chooses_by_objective(parts_.settings.policy) ? objective_name(parts_.settings.objective) : "";
  index_.encoding.streams.resize(index_.streams.streams.size());
  inputs_.emplace(index_.encoding);
  BITSNAP_TRY(prepare_streams());
  order_chunks();
  group_like_chunks();

  const std::size_t slots = executor.default_slots();
  std::deque<ChunkEncoder> encoders;
  for (std::size_t i = 0; i < slots; ++i) encoders.emplace_back(parts_.source, parts_.rules, parts_.tap, slots);
  std::vector<EncodedChunk> encoded(slots);

  if (parts_.tap != nullptr) BITSNAP_TRY(parts_.tap->begin(index_.streams.streams));
  BITSNAP_TRY(writer_.begin());
  const auto work = [&](std::size_t place, std::size_t slot) -> Result<void> {
    BITSNAP_ASSIGN(encoded[slot], make_chunk(order_[place], encoders[slot]));
    return {};
  };
  const auto commit = [&](std::size_t place, std::size_t slot) {
    return commit_chunk(order_[place], encoded[slot], encoders[slot]);
  };
  BITSNAP_TRY(executor.run_ordered(index_.chunks.size(), slots, work, commit));

  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    if (!jobs_[i].is_stored) index_.encoding.streams[i].reason = planners_[i].reason();
    auto promise = parts_.quantized != nullptr ? parts_.quantized->promise(i) : std::nullopt;
    if (!promise) continue;
    promise->reached = lost_[i].reached;
    promise->updates = lost_[i].updates;
    index_.encoding.streams[i].quantizer = std::move(promise);
  }
  BITSNAP_TRY(writer_.finish(index_));
  return WriteSummary{SaveSummary{index_.id, raw_bytes_, writer_.size_bytes(), index_.chunks.size()}, depth_,
                      inputs_->references()};
}

bool SnapshotPipeline::is_all_stored(std::size_t stream) const {
  const auto& first = index_.streams.first_chunk;
  for (std::uint64_t number = first[stream]; number < first[stream + 1]; ++number) {
    if (!is_stored(static_cast<std::size_t>(number))) return false;
  }
  return true;
}

std::size_t SnapshotPipeline::stream_of(std::size_t number) const {
  const auto& first = index_.streams.first_chunk;
  return static_cast<std::size_t>(std::ranges::upper_bound(first, number) - first.begin()) - 1;
}

std::string SnapshotPipeline::describe(std::size_t stream) const {
  const auto& tensor = index_.streams.streams[stream].tensor;
  return tensor ? fmt::format("tensor {}", container::quote_name(index_.content.tensors[*tensor].name))
                : "the pool of small tensors";
}

Result<EncodedChunk> SnapshotPipeline::make_chunk(std::size_t number, ChunkEncoder& encoder) {
  const std::size_t stream = stream_of(number);
  const std::uint64_t chunk = number - index_.streams.first_chunk[stream];
  if (!is_stored(number)) {
    const Place& place = places_[number];
    plan::Seat seat(place.group, place.member);
    auto result = encoder.encode(jobs_[stream], chunk, seat);
    if (!result) return tl::unexpected(name_file(std::move(result).error(), describe(stream)));
    return result;
  }
  EncodedChunk copied;
  const StreamInfo& info = index_.streams.streams[stream];
  copied.raw_bytes = container::chunk_elements(info, chunk) * element_size(info.dtype);
  BITSNAP_ASSIGN(copied.payload, parts_.stored->read(number, encoder.free_scratch()));
  return copied;
}

Result<void> SnapshotPipeline::commit_chunk(std::size_t number, EncodedChunk& chunk, ChunkEncoder& encoder) {
  container::ChunkEntry& entry = index_.chunks[number];
  if (is_stored(number)) {
    enter_stored(number);
  } else {
    BITSNAP_TRY(enter_encoded(number, chunk, encoder));
  }
  depth_ = std::max<std::uint32_t>(depth_, entry.depth);
  BITSNAP_TRY(writer_.append_payload(chunk.payload, entry));
  const codec::Decoder* const decoder = codec::find_decoder(entry.codec);
  const std::size_t stream = stream_of(number);
  const bool is_like_another = chunk.choice.is_followed && chunk.choice.origin != stream;
  planners_[stream].note(chunk.choice, decoder != nullptr ? decoder->name() : "unknown", chunk.raw_bytes,
                         is_like_another ? describe(chunk.choice.origin) : std::string());
  lost_[stream].reached.merge(chunk.lost.reached);
  quantize::merge(lost_[stream].updates, chunk.lost.updates);
  raw_bytes_ += chunk.raw_bytes;
  if (parts_.progress && !parts_.progress(raw_bytes_, total_bytes_)) {
    return fail(ErrorKind::cancelled, "saving was cancelled by the caller");
  }
  return {};
}

Result<void> SnapshotPipeline::enter_encoded(std::size_t number, EncodedChunk& chunk, ChunkEncoder& encoder) {
  const std::size_t stream = stream_of(number);
  const std::uint64_t first = (number - index_.streams.first_chunk[stream]) * kChunkElements;
  container::ChunkEntry entry;
  for (std::size_t i = 0; i < chunk.inputs.size(); ++i) {
    bool refers = false;
    if (const auto* const base = std::get_if<BaseUse>(&chunk.inputs[i])) {
      BITSNAP_ASSIGN(refers, refer_to_base(stream, first, *base, i, entry));
    } else {
      refers = refer_to_peer(stream, std::get<PeerUse>(chunk.inputs[i]), i, entry);
    }
    if (refers) continue;
    entry = {};
    BITSNAP_ASSIGN(chunk, encoder.encode_alone(jobs_[stream]));
  }
  entry.codec = static_cast<std::uint16_t>(chunk.codec);
  entry.decoded_hash = chunk.decoded_hash;
  index_.chunks[number] = entry;
  return {};
}

// What its peers in this file need may have become less, and with it the depth of a chunk that has nothing else.
void SnapshotPipeline::enter_stored(std::size_t number) {
  const std::size_t stream = stream_of(number);
  container::ChunkEntry& entry = index_.chunks[number];
  const StreamInfo& info = index_.streams.streams[stream];
  const std::uint64_t chunk = number - index_.streams.first_chunk[stream];
  bool has_base = false;
  std::uint8_t depth = 0;
  for (const std::uint8_t input : entry.inputs) {
    if (input == container::kNoInput) break;
    const container::StreamInput& from = index_.encoding.streams[stream].inputs[input];
    if (from.base) {
      has_base = true;
      inputs_->note_reference(stream, input, entry.depth - 1U);
      continue;
    }
    const std::uint64_t peer = index_.streams.first_chunk[static_cast<std::size_t>(from.stream)];
    const container::ChunkRange range = container::touched_chunks(from, info, chunk);
    for (std::uint64_t touched = range.first; touched <= range.last; ++touched) {
      depth = std::max(depth, index_.chunks[static_cast<std::size_t>(peer + touched)].depth);
    }
  }
  if (!has_base) entry.depth = depth;
}

// False where the peer's bytes were others when it was stored: whoever owns them was writing.
bool SnapshotPipeline::refer_to_peer(std::size_t stream, const PeerUse& use, std::size_t place,
                                     container::ChunkEntry& entry) {
  const std::uint64_t first = index_.streams.first_chunk[use.peer.stream] + use.first_chunk;
  std::uint8_t depth = entry.depth;
  for (std::size_t i = 0; i < use.chunks; ++i) {
    const container::ChunkEntry& touched = index_.chunks[static_cast<std::size_t>(first + i)];
    if (touched.decoded_hash != use.hashes[i]) return false;
    depth = std::max(depth, touched.depth);
  }
  const std::optional<std::uint8_t> input = inputs_->enter_peer(stream, use.peer);
  if (!input) return false;
  entry.inputs[place] = *input;
  entry.depth = depth;
  return true;
}

// Enters the chunk that holds the base's bytes into the stream's inputs. Where that is not possible (the holder stands
// at an offset before the start, or the stream has too many holders) the base itself is named, which holds the same
// bytes. False where that may not be, as it would need the holder in turn; and where there is no place for another base
// than the stream's own.
Result<bool> SnapshotPipeline::refer_to_base(std::size_t stream, std::uint64_t first, const BaseUse& use,
                                             std::size_t place, container::ChunkEntry& entry) {
  const BaseStream& own = *use.stream;
  const ChunkHolder& holder = use.holder;
  std::optional<std::uint8_t> input;
  std::uint32_t depth = holder.depth;
  if (holder.first_element >= first) {
    input = inputs_->enter(stream, own, *holder.base, holder.stream, holder.first_element - first);
  }
  if (!input) {
    if (parts_.rules.max_depth == 0) return false;
    depth = holder.own_depth;
    input = inputs_->enter(stream, own, *own.base, own.stream, 0);
    if (!input && use.stream != &*jobs_[stream].base) return false;
    if (!input) return fail(ErrorKind::internal, fmt::format("{}: no room for its base", describe(stream)));
  }
  entry.inputs[place] = *input;
  entry.depth = std::max(entry.depth, static_cast<std::uint8_t>(depth + 1));
  inputs_->note_reference(stream, *input, depth);
  return true;
}

}  // namespace bitsnap::save
