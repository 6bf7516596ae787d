// The pipeline: encoder threads make chunks, one thread at a time enters them into the tables and writes them.
#include "save/snapshot_pipeline.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <bitsnap/version.hpp>

#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "codec/registry.hpp"
#include "container/chunk_table.hpp"
#include "container/file_writer.hpp"
#include "quantize/update_errors.hpp"
#include "save/chunk_encoder.hpp"
#include "save/chunk_order.hpp"

namespace bitsnap::save {
namespace {

class Pipeline {
 public:
  Pipeline(container::Index& index, const PipelineParts& parts, os::WritableFile& file)
      : index_(index), parts_(parts), writer_(file) {}

  Result<WriteSummary> run(exec::Executor& executor) {
    describe_writer();
    BITSNAP_TRY(plan_streams());
    if (parts_.tap != nullptr) BITSNAP_TRY(parts_.tap->begin(index_.streams.streams));
    BITSNAP_TRY(writer_.begin());
    BITSNAP_TRY(write_chunks(executor));
    let_go_of_bases();
    describe_streams();
    BITSNAP_TRY(writer_.finish(index_));
    return WriteSummary{SaveSummary{index_.id, raw_bytes_, writer_.size_bytes(), index_.chunks.size()}, depth_,
                        inputs_->references()};
  }

 private:
  // Enters what writes the file, and with which policy.
  void describe_writer() {
    container::Encoding& encoding = index_.encoding;
    encoding.writer = fmt::format("bitsnap {}", version());
    encoding.policy = policy_name(parts_.settings.policy);
    encoding.objective = chooses_by_objective(parts_.settings.policy) ? objective_name(parts_.settings.objective) : "";
  }

  // Finds the bases, peers and candidates of each stream, and the order in which chunks are encoded.
  Result<void> plan_streams() {
    index_.encoding.streams.resize(index_.streams.streams.size());
    inputs_.emplace(index_.encoding, parts_.bases == nullptr || parts_.bases->names_bases());
    BITSNAP_ASSIGN(made_, make_stream_jobs(index_, parts_, *inputs_));
    lost_.resize(made_.jobs.size());
    for (const StreamJob& job : made_.jobs) total_bytes_ += job.elements * element_size(job.dtype);
    order_ = order_chunks(index_, made_.jobs, parts_.stored);
    similar_ = group_similar_chunks(index_, made_.jobs, parts_.stored, order_);
    return {};
  }

  // Encodes or copies all chunks on the threads of the executor, and writes them in order.
  Result<void> write_chunks(exec::Executor& executor) {
    const std::size_t slots = executor.default_slots();
    std::deque<ChunkEncoder> encoders;
    for (std::size_t i = 0; i < slots; ++i) encoders.emplace_back(parts_.source, parts_.rules, parts_.tap, slots);
    std::vector<EncodedChunk> encoded(slots);
    const auto work = [&](std::size_t place, std::size_t slot) -> Result<void> {
      BITSNAP_ASSIGN(encoded[slot], make_chunk(order_[place], encoders[slot]));
      return {};
    };
    const auto commit = [&](std::size_t place, std::size_t slot) {
      return commit_chunk(order_[place], encoded[slot], encoders[slot]);
    };
    BITSNAP_TRY(executor.run_ordered(index_.chunks.size(), slots, work, commit));
    // On the caller's thread, so that one that can cancel only there always does so before the file appears.
    return raw_bytes_ > 0 ? report_progress() : Result<void>();
  }

  // Bases with many tensors take much memory, and so does the index that is written next.
  void let_go_of_bases() {
    for (StreamJob& job : made_.jobs) {
      job.base.reset();
      job.step.reset();
    }
    if (parts_.bases != nullptr) parts_.bases->end();
  }

  // Enters why the codecs were chosen, and the errors that quantizers caused.
  void describe_streams() {
    for (std::size_t i = 0; i < made_.jobs.size(); ++i) {
      container::StreamEncoding& encoding = index_.encoding.streams[i];
      if (!made_.jobs[i].is_stored) encoding.reason = made_.planners[i].reason();
      auto report = parts_.quantized != nullptr ? parts_.quantized->report(i) : std::nullopt;
      if (!report) continue;
      report->reached = lost_[i].reached;
      report->updates = lost_[i].updates;
      encoding.quantizer = std::move(report);
    }
  }

  // Chunks are named by their numbers in the file.

  [[nodiscard]] bool is_stored(std::size_t number) const { return parts_.stored && parts_.stored->contains(number); }

  [[nodiscard]] std::string describe(std::size_t stream) const {
    const auto& tensor = index_.streams.streams[stream].tensor;
    return tensor ? quote_tensor(index_.content.tensors[*tensor].name) : "the pool of small tensors";
  }

  Result<EncodedChunk> make_chunk(std::size_t number, ChunkEncoder& encoder) {
    const std::size_t stream = index_.streams.stream_of_chunk(number);
    const std::uint64_t chunk = number - index_.streams.first_chunk[stream];
    if (!is_stored(number)) {
      const SimilarChunks::Place& place = similar_.places[number];
      plan::Seat seat(place.group, place.member);
      auto result = encoder.encode(made_.jobs[stream], chunk, seat);
      if (!result) return tl::unexpected(name_file(std::move(result).error(), describe(stream)));
      return result;
    }
    EncodedChunk copied;
    const StreamInfo& info = index_.streams.streams[stream];
    copied.raw_bytes = container::chunk_elements(info, chunk) * element_size(info.dtype);
    BITSNAP_ASSIGN(copied.payload, parts_.stored->read(number, encoder.free_scratch()));
    return copied;
  }

  Result<void> commit_chunk(std::size_t number, EncodedChunk& chunk, ChunkEncoder& encoder) {
    const std::size_t stream = index_.streams.stream_of_chunk(number);
    container::ChunkEntry& entry = index_.chunks[number];
    if (is_stored(number)) {
      update_copied(stream, number);
    } else {
      BITSNAP_ASSIGN(entry, enter_encoded(stream, number, chunk, encoder));
    }
    depth_ = std::max<std::uint32_t>(depth_, entry.depth);
    BITSNAP_TRY(writer_.append_payload(chunk.payload, entry));
    const codec::Decoder* const decoder = codec::find_decoder(entry.codec);
    const bool follows_another = chunk.choice.is_followed && chunk.choice.origin != stream;
    made_.planners[stream].note(chunk.choice, decoder != nullptr ? decoder->name() : "unknown", chunk.raw_bytes,
                                follows_another ? describe(chunk.choice.origin) : std::string());
    lost_[stream].reached.merge(chunk.lost.reached);
    quantize::merge(lost_[stream].updates, chunk.lost.updates);
    raw_bytes_ += chunk.raw_bytes;
    return raw_bytes_ < total_bytes_ ? report_progress() : Result<void>();
  }

  Result<void> report_progress() {
    if (!parts_.progress || parts_.progress(raw_bytes_, total_bytes_)) return {};
    return fail(ErrorKind::cancelled, "saving was cancelled by the caller");
  }

  // Makes the entry of a chunk. If an input cannot be entered, encodes the chunk again without inputs.
  Result<container::ChunkEntry> enter_encoded(std::size_t stream, std::size_t number, EncodedChunk& chunk,
                                              ChunkEncoder& encoder) {
    const std::uint64_t first = (number - index_.streams.first_chunk[stream]) * kChunkElements;
    container::ChunkEntry entry;
    for (std::size_t i = 0; i < chunk.inputs.size(); ++i) {
      bool is_entered = false;
      if (const auto* const base = std::get_if<BaseUse>(&chunk.inputs[i])) {
        BITSNAP_ASSIGN(is_entered, enter_base(stream, first, *base, i, entry));
      } else {
        is_entered = enter_peer(stream, std::get<PeerUse>(chunk.inputs[i]), i, entry);
      }
      if (is_entered) continue;
      entry = {};
      BITSNAP_ASSIGN(chunk, encoder.encode_alone(made_.jobs[stream]));
    }
    entry.codec = static_cast<std::uint16_t>(chunk.codec);
    entry.decoded_hash = chunk.decoded_hash;
    return entry;
  }

  // Notes what a copied chunk refers to. If it needs chunks of this file only, its depth is that of those chunks, which
  // may now be lower than in the old file.
  void update_copied(std::size_t stream, std::size_t number) {
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

  // Enters input `place` of a chunk. Returns false if the stored peer has other bytes than those that the chunk was
  // coded against (the caller changed them during the save), or if there is no room.
  bool enter_peer(std::size_t stream, const PeerUse& use, std::size_t place, container::ChunkEntry& entry) {
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

  // Enters input `place` of a chunk that starts at element `first`: the holder of the base's bytes, if possible (the
  // holder may start before its stream, or the table be full), and otherwise the base. Returns false if there is no
  // room, or if max_depth is 0, since a keyframe refers to holders only. The main base of a stream always has room.
  Result<bool> enter_base(std::size_t stream, std::uint64_t first, const BaseUse& use, std::size_t place,
                          container::ChunkEntry& entry) {
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
      if (!input && use.stream != &*made_.jobs[stream].base) return false;
      if (!input)
        return fail(ErrorKind::internal,
                    fmt::format("{}: the stream has no input left for its base", describe(stream)));
    }
    entry.inputs[place] = *input;
    entry.depth = std::max(entry.depth, static_cast<std::uint8_t>(depth + 1));
    inputs_->note_reference(stream, *input, depth);
    return true;
  }

  container::Index& index_;
  const PipelineParts& parts_;
  container::FileWriter writer_;
  std::optional<InputTable> inputs_;
  StreamJobs made_;
  std::vector<std::size_t> order_;  // of chunks
  SimilarChunks similar_;
  std::vector<Lost> lost_;   // by stream
  std::uint32_t depth_ = 0;  // of the deepest chunk
  std::uint64_t raw_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace

Result<WriteSummary> run_pipeline(container::Index& index, const PipelineParts& parts, os::WritableFile& file,
                                  exec::Executor& executor) {
  return Pipeline(index, parts, file).run(executor);
}

}  // namespace bitsnap::save
