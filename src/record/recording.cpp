// The pipeline, and what of a chunk goes into the tables.
#include "record/recording.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <bitsnap/version.hpp>

#include "base/try.hpp"
#include "codec/registry.hpp"
#include "container/chunk_table.hpp"
#include "container/json_text.hpp"
#include "tensor/row_elements.hpp"

namespace bitsnap::record {

Recording::Recording(container::Index& index, const RecordingParts& parts, os::WritableFile& file)
    : index_(index), parts_(parts), writer_(file) {}

Result<RecordSummary> Recording::run(exec::Executor& executor) {
  index_.encoding.writer = fmt::format("bitsnap {}", version());
  index_.encoding.policy = policy_name(parts_.policy);
  index_.encoding.streams.resize(index_.streams.streams.size());
  inputs_.emplace(index_.encoding);
  BITSNAP_TRY(prepare_streams());
  order_chunks();

  const std::size_t slots = executor.default_slots();
  std::deque<ChunkEncoder> encoders;
  for (std::size_t i = 0; i < slots; ++i) encoders.emplace_back(parts_.source, parts_.rules, parts_.tap);
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
  }
  BITSNAP_TRY(writer_.finish(index_));
  return RecordSummary{SaveSummary{index_.id, raw_bytes_, writer_.size_bytes(), index_.chunks.size()}, depth_,
                       inputs_->references()};
}

Result<void> Recording::prepare_streams() {
  const auto& streams = index_.streams.streams;
  if (parts_.bases != nullptr) parts_.bases->begin(index_.content.tensors);
  std::vector<std::optional<PeerStream>> peers(streams.size());
  if (plan::codes_with_peers(parts_.policy)) {
    std::vector<bool> wanted(streams.size());
    for (std::size_t i = 0; i < streams.size(); ++i) wanted[i] = !is_all_stored(i);
    peers =
        parts_.stored != nullptr ? peers_named() : find_peers(index_.content, index_.streams, parts_.source, wanted);
    rank_peers(peers);
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const StreamInfo& stream = streams[i];
    total_bytes_ += stream.elements * element_size(stream.dtype);
    const bool all_stored = is_all_stored(i);
    const Role role = stream.tensor ? index_.content.tensors[*stream.tensor].role : Role::other;
    const std::optional<DType> peer_dtype =
        peers[i] ? std::optional(streams[peers[i]->stream].dtype) : std::optional<DType>();
    const auto add_planner = [&](bool builds_on_base) {
      planners_.emplace_back(parts_.policy, stream.dtype, role, !stream.tensor, builds_on_base, peer_dtype);
    };
    add_planner(parts_.rules.max_depth > 0);
    std::optional<BaseStream> base;
    // Finding a base may open files: only where it could be of use.
    if (!all_stored && planners_.back().wants_base()) {
      BITSNAP_ASSIGN(base, find_base(i));
      // One that the table of bases may have no room for is none.
      if (base && !inputs_->keep_place(*base->base)) base.reset();
    }
    if (!base) {
      planners_.pop_back();
      add_planner(false);
    }
    const std::size_t row_elements =
        stream.tensor ? tensor::row_elements(index_.content.tensors[*stream.tensor].shape) : 0;
    StreamJob& job = jobs_.emplace_back(StreamJob{.stream = i,
                                                  .dtype = stream.dtype,
                                                  .elements = stream.elements,
                                                  .row_elements = row_elements,
                                                  .base = std::move(base),
                                                  .peer = peers[i],
                                                  .planner = &planners_.back(),
                                                  .is_stored = all_stored});
    if (!planners_.back().codes_with_peer()) job.peer.reset();
    if (job.peer) {
      job.peer_dtype = streams[job.peer->stream].dtype;
      job.peer_elements = streams[job.peer->stream].elements;
    }
  }
  return {};
}

std::vector<std::optional<PeerStream>> Recording::peers_named() const {
  const auto& streams = index_.encoding.streams;
  std::vector<std::optional<PeerStream>> peers(streams.size());
  for (std::size_t i = 0; i < streams.size(); ++i) {
    for (const container::StreamInput& input : streams[i].inputs) {
      if (input.base || peers[i]) continue;
      // Chunks that name it are known to lie within it; others may not.
      const std::uint64_t elements = index_.streams.streams[static_cast<std::size_t>(input.stream)].elements;
      if (input.element > elements || index_.streams.streams[i].elements > elements - input.element) continue;
      peers[i] = PeerStream{static_cast<std::size_t>(input.stream), input.element};
    }
  }
  return peers;
}

// Chunks that are taken over have inputs already, by the ranks that streams have: one that is referred to keeps its.
void Recording::rank_peers(std::vector<std::optional<PeerStream>>& peers) {
  auto& streams = index_.encoding.streams;
  std::vector<bool> is_referred_to(streams.size());
  for (const container::StreamEncoding& stream : streams) {
    for (const container::StreamInput& input : stream.inputs) {
      if (!input.base) is_referred_to[static_cast<std::size_t>(input.stream)] = true;
    }
  }
  for (std::size_t i = 0; i < peers.size(); ++i) {
    if (!peers[i]) continue;
    const std::uint8_t rank = streams[peers[i]->stream].rank;
    if (std::pair(rank, peers[i]->stream) < std::pair(streams[i].rank, i)) continue;
    if (is_referred_to[i] || rank == std::numeric_limits<std::uint8_t>::max()) {
      peers[i].reset();
    } else {
      streams[i].rank = static_cast<std::uint8_t>(rank + 1);
    }
  }
}

// By rank; where nothing is taken over, each chunk right behind the last of its peer's that it needs, whose bytes are
// still in the cache.
void Recording::order_chunks() {
  const auto& first = index_.streams.first_chunk;
  std::vector<std::size_t> streams(jobs_.size());
  std::iota(streams.begin(), streams.end(), std::size_t{0});
  std::ranges::sort(streams, {}, [&](std::size_t i) { return std::pair(index_.encoding.streams[i].rank, i); });
  std::vector<std::vector<std::size_t>> followers(jobs_.size());
  if (parts_.stored == nullptr) {
    for (const StreamJob& job : jobs_) {
      if (job.peer) followers[job.peer->stream].push_back(job.stream);
    }
  }
  order_.reserve(index_.chunks.size());
  std::vector<std::uint64_t> next(first.begin(), first.end());
  for (const std::size_t stream : streams) {
    if (parts_.stored == nullptr && jobs_[stream].peer) continue;
    for (std::uint64_t number = first[stream]; number < first[stream + 1]; ++number) {
      order_.push_back(static_cast<std::size_t>(number));
      const std::uint64_t done = std::min((number - first[stream] + 1) * kChunkElements, jobs_[stream].elements);
      for (const std::size_t follower : followers[stream]) {
        const StreamJob& job = jobs_[follower];
        const auto needed = [&] {
          return job.peer->element + std::min((next[follower] - first[follower] + 1) * kChunkElements, job.elements);
        };
        for (; next[follower] < first[follower + 1] && needed() <= done; ++next[follower]) {
          order_.push_back(static_cast<std::size_t>(next[follower]));
        }
      }
    }
  }
}

Result<std::optional<BaseStream>> Recording::find_base(std::size_t stream) {
  if (parts_.bases == nullptr) return std::nullopt;
  const StreamInfo& info = index_.streams.streams[stream];
  if (!info.tensor) return parts_.bases->find_pool(info);
  return parts_.bases->find(index_.content.tensors[*info.tensor], info);
}

bool Recording::is_all_stored(std::size_t stream) const {
  const auto& first = index_.streams.first_chunk;
  for (std::uint64_t number = first[stream]; number < first[stream + 1]; ++number) {
    if (!is_stored(static_cast<std::size_t>(number))) return false;
  }
  return true;
}

std::size_t Recording::stream_of(std::size_t number) const {
  const auto& first = index_.streams.first_chunk;
  return static_cast<std::size_t>(std::ranges::upper_bound(first, number) - first.begin()) - 1;
}

std::string Recording::describe(std::size_t stream) const {
  const auto& tensor = index_.streams.streams[stream].tensor;
  return tensor ? fmt::format("tensor {}", container::quote_name(index_.content.tensors[*tensor].name))
                : "the pool of small tensors";
}

Result<EncodedChunk> Recording::make_chunk(std::size_t number, ChunkEncoder& encoder) {
  const std::size_t stream = stream_of(number);
  const std::uint64_t chunk = number - index_.streams.first_chunk[stream];
  if (!is_stored(number)) {
    auto result = encoder.encode(jobs_[stream], chunk);
    if (!result) return tl::unexpected(name_file(std::move(result).error(), describe(stream)));
    return result;
  }
  EncodedChunk copied;
  const StreamInfo& info = index_.streams.streams[stream];
  copied.raw_bytes = container::chunk_elements(info, chunk) * element_size(info.dtype);
  BITSNAP_ASSIGN(copied.payload, parts_.stored->read(number, encoder.free_scratch()));
  return copied;
}

Result<void> Recording::commit_chunk(std::size_t number, EncodedChunk& chunk, ChunkEncoder& encoder) {
  container::ChunkEntry& entry = index_.chunks[number];
  if (is_stored(number)) {
    enter_stored(number);
  } else {
    BITSNAP_TRY(enter_encoded(number, chunk, encoder));
  }
  depth_ = std::max<std::uint32_t>(depth_, entry.depth);
  BITSNAP_TRY(writer_.append_payload(chunk.payload, entry));
  const codec::Decoder* const decoder = codec::find_decoder(entry.codec);
  planners_[stream_of(number)].note(chunk.choice, decoder != nullptr ? decoder->name() : "unknown", chunk.raw_bytes);
  raw_bytes_ += chunk.raw_bytes;
  if (parts_.progress && !parts_.progress(raw_bytes_, total_bytes_)) {
    return fail(ErrorKind::cancelled, "saving was cancelled by the caller");
  }
  return {};
}

Result<void> Recording::enter_encoded(std::size_t number, EncodedChunk& chunk, ChunkEncoder& encoder) {
  const std::size_t stream = stream_of(number);
  container::ChunkEntry entry;
  if (chunk.peer && !refer_to_peer(stream, *chunk.peer, entry)) {
    BITSNAP_ASSIGN(chunk, encoder.encode_alone(jobs_[stream]));
  }
  if (chunk.input) {
    const std::uint64_t first = (number - index_.streams.first_chunk[stream]) * kChunkElements;
    BITSNAP_ASSIGN(const bool refers, refer(stream, first, *chunk.input, entry));
    if (!refers) {
      BITSNAP_ASSIGN(chunk, encoder.encode_alone(jobs_[stream]));
    }
  }
  entry.codec = static_cast<std::uint16_t>(chunk.codec);
  entry.decoded_hash = chunk.decoded_hash;
  index_.chunks[number] = entry;
  return {};
}

// What its peers in this file need may have become less, and with it the depth of a chunk that has nothing else.
void Recording::enter_stored(std::size_t number) {
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
bool Recording::refer_to_peer(std::size_t stream, const PeerUse& use, container::ChunkEntry& entry) {
  const PeerStream& peer = *jobs_[stream].peer;
  const std::uint64_t first = index_.streams.first_chunk[peer.stream] + use.first_chunk;
  std::uint8_t depth = 0;
  for (std::size_t i = 0; i < use.chunks; ++i) {
    const container::ChunkEntry& touched = index_.chunks[static_cast<std::size_t>(first + i)];
    if (touched.decoded_hash != use.hashes[i]) return false;
    depth = std::max(depth, touched.depth);
  }
  const std::optional<std::uint8_t> input = inputs_->enter_peer(stream, peer);
  if (!input) return false;
  entry.inputs[0] = *input;
  entry.depth = depth;
  return true;
}

// Enters the chunk that holds the base's bytes into the stream's inputs. Where that is not possible (the holder stands
// at an offset before the start, or the stream has too many holders) the base itself is named, which holds the same
// bytes. False where that may not be: it would need the holder in turn.
Result<bool> Recording::refer(std::size_t stream, std::uint64_t first, const ChunkHolder& holder,
                              container::ChunkEntry& entry) {
  const BaseStream& own = *jobs_[stream].base;
  std::optional<std::uint8_t> input;
  std::uint32_t depth = holder.depth;
  if (holder.first_element >= first) {
    input = inputs_->enter(stream, own, *holder.base, holder.stream, holder.first_element - first);
  }
  if (!input) {
    if (parts_.rules.max_depth == 0) return false;
    depth = holder.own_depth;
    input = inputs_->enter(stream, own, *own.base, own.stream, 0);
    if (!input) return fail(ErrorKind::internal, fmt::format("{}: no room for its base", describe(stream)));
  }
  entry.inputs[0] = *input;
  entry.depth = static_cast<std::uint8_t>(depth + 1);
  inputs_->note_reference(stream, *input, depth);
  return true;
}

}  // namespace bitsnap::record
