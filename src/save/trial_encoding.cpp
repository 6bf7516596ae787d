// Runs the steps of a save up to the payloads of the chunks.
#include "save/trial_encoding.hpp"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/hash.hpp"
#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/chunk_table.hpp"
#include "container/index.hpp"
#include "save/chunk_encoder.hpp"
#include "save/chunk_order.hpp"

namespace bitsnap::save {

Result<void> CountedReader::read(std::size_t stream, std::uint64_t offset, ByteSpan out, ReadContext& context) const {
  const StreamInfo& info = streams_.streams[stream];
  const std::uint64_t chunk_bytes = kChunkElements * element_size(info.dtype);
  const std::uint64_t stream_bytes = info.elements * element_size(info.dtype);
  const std::uint64_t end = offset + out.size();
  for (std::uint64_t at = offset; at < end;) {
    const std::uint64_t chunk = at / chunk_bytes;
    const std::uint64_t next = std::min((chunk + 1) * chunk_bytes, stream_bytes);
    const std::uint64_t part = std::min(next, end) - at;
    std::atomic<bool>& seen = seen_[static_cast<std::size_t>(streams_.first_chunk[stream] + chunk)];
    const bool is_whole = at == chunk * chunk_bytes && end >= next;
    if (is_whole ? !seen.exchange(true) : !seen.load()) read_bytes_ += part;
    at += part;
  }
  return reader_.read(stream, offset, out, context);
}

Result<std::shared_ptr<const TrialState>> TrialState::make(std::string name, std::shared_ptr<const State> state,
                                                           const CodingSettings& settings, std::uint32_t depth,
                                                           exec::Executor& executor) {
  const auto make = [&]() -> Result<std::shared_ptr<const TrialState>> {
    std::shared_ptr<TrialState> made(new TrialState);
    made->name_ = name;
    made->state_ = std::move(state);
    made->depth_ = depth;
    BITSNAP_ASSIGN(made->content_, lay_out(*made->state_));
    BITSNAP_ASSIGN(made->streams_, container::derive_streams(made->content_));
    BITSNAP_ASSIGN(made->masters_, lay_out_masters(*made->state_, made->content_, made->streams_));
    made->reader_.emplace(*made->state_, made->content_, made->streams_);
    BITSNAP_ASSIGN(std::vector<StreamLoss> losses,
                   plan_losses(*made->state_, {.settings = merge_settings(settings, default_settings())},
                               made->content_, made->streams_, *made->reader_, made->masters_, executor));
    made->quantized_.emplace(*made->reader_, made->streams_, std::move(losses));
    return made;
  };
  auto made = no_throw("estimating", make);
  if (!made) return tl::unexpected(name_file(std::move(made).error(), name));
  return made;
}

Result<void> TrialState::read_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out,
                                       ReadContext& context) const {
  return source().read(stream, first * element_size(streams_.streams[stream].dtype), out, context);
}

Result<ChunkHolder> TrialState::holder(std::size_t stream, std::uint64_t chunk) const {
  return ChunkHolder{
      .base = nullptr, .stream = stream, .first_element = chunk * kChunkElements, .depth = depth_, .own_depth = depth_};
}

// The parts of a save that one call uses.
class Trial {
 public:
  Trial(const TrialState& state, const TrialOptions& options) : state_(state), options_(options) {}

  Result<TrialSizes> run(std::span<const std::size_t> numbers, exec::Executor& executor) {
    BITSNAP_TRY(plan());
    TrialSizes sizes;
    BITSNAP_TRY(encode(numbers, executor, sizes.chunks));
    BITSNAP_ASSIGN(sizes.table_bytes, table_bytes(sizes.chunks));
    return sizes;
  }

 private:
  Result<void> plan() {
    index_.content = state_.content_;
    index_.streams = state_.streams_;
    index_.chunks.resize(static_cast<std::size_t>(index_.streams.first_chunk.back()));
    index_.safetensors_header = state_.state_->safetensors_header;
    index_.encoding.streams.resize(index_.streams.streams.size());
    const CodingSettings settings = merge_settings(options_.settings, default_settings());
    rules_.max_depth = *settings.max_depth;
    rules_.bases_are_later = options_.base_is_later;
    BITSNAP_ASSIGN(const plan::PlannerSettings planner_settings, plan::make_planner_settings(settings));
    if (options_.base != nullptr) base_.emplace(options_.base);
    const Progress no_progress;
    const PipelineParts parts{.source = state_.source(),
                              .settings = planner_settings,
                              .rules = rules_,
                              .bases = base_ ? &*base_ : nullptr,
                              .masters = state_.masters_,
                              .quantized = state_.quantized_->is_lossy() ? &*state_.quantized_ : nullptr,
                              .progress = no_progress};
    InputTable inputs(index_.encoding, true);
    BITSNAP_ASSIGN(made_, make_stream_jobs(index_, parts, inputs));
    return {};
  }

  // In the order of a save, so that chunks follow the choices of similar ones as they do there.
  Result<void> encode(std::span<const std::size_t> numbers, exec::Executor& executor, std::vector<TrialChunk>& chunks) {
    std::vector<std::optional<std::size_t>> places(index_.chunks.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) places[numbers[i]] = i;
    std::vector<std::size_t> order = order_chunks(index_, made_.jobs, nullptr);
    std::erase_if(order, [&](std::size_t number) { return !places[number]; });
    const SimilarChunks similar = group_similar_chunks(index_, made_.jobs, nullptr, order);
    chunks.resize(numbers.size());
    const std::size_t slots = executor.default_slots();
    std::deque<ChunkEncoder> encoders;
    for (std::size_t i = 0; i < slots; ++i) encoders.emplace_back(state_.source(), rules_, nullptr, slots);
    const auto work = [&](std::size_t item, std::size_t slot) -> Result<void> {
      const std::size_t number = order[item];
      const std::size_t stream = index_.streams.stream_of_chunk(number);
      const SimilarChunks::Place& place = similar.places[number];
      plan::Seat seat(place.group, place.member);
      auto encoded = encoders[slot].encode(made_.jobs[stream], number - index_.streams.first_chunk[stream], seat);
      if (!encoded) return tl::unexpected(name_file(std::move(encoded).error(), describe(stream, number)));
      chunks[*places[number]] = {.raw_bytes = encoded->raw_bytes,
                                 .stored_bytes = encoded->payload.size(),
                                 .is_same = encoded->codec == codec::CodecId::same};
      return {};
    };
    const auto commit = [&](std::size_t item, std::size_t /*slot*/) -> Result<void> {
      return options_.done ? options_.done(chunks[*places[order[item]]].raw_bytes) : Result<void>();
    };
    return executor.run_ordered(order.size(), slots, work, commit);
  }

  [[nodiscard]] std::string describe(std::size_t stream, std::size_t number) const {
    return container::chunk_place(index_.content, index_.streams.streams[stream],
                                  number - index_.streams.first_chunk[stream]);
  }

  // Hashes do not compress, so any others take as much. A stream has a reason of about 40 letters.
  Result<std::uint64_t> table_bytes(const std::vector<TrialChunk>& chunks) {
    std::uint64_t offset = container::kHeaderBytes;
    for (std::size_t i = 0; i < index_.chunks.size(); ++i) {
      container::ChunkEntry& entry = index_.chunks[i];
      const std::uint64_t number = i;
      entry.decoded_hash = hash64(std::as_bytes(std::span(&number, 1)));
      entry.stored_hash = hash64(std::as_bytes(std::span(&entry.decoded_hash, 1)));
      entry.stored_bytes =
          chunks.empty() ? 0 : static_cast<std::uint32_t>(chunks[i % chunks.size()].stored_bytes ^ (number & 0xFFU));
      entry.offset = offset;
      offset += entry.stored_bytes;
    }
    for (std::size_t i = 0; i < made_.jobs.size(); ++i) index_.encoding.streams[i].reason = made_.planners[i].reason();
    BITSNAP_ASSIGN(const container::SerializedIndex serialized, container::serialize_index(index_));
    return serialized.bytes.size() + container::kHeaderBytes + container::kFooterBytes;
  }

  const TrialState& state_;
  const TrialOptions& options_;
  ReferenceRules rules_;
  container::Index index_;
  std::optional<SingleBase> base_;
  StreamJobs made_;
};

Result<TrialSizes> encode_on_trial(const TrialState& state, std::span<const std::size_t> numbers,
                                   const TrialOptions& options, exec::Executor& executor) {
  auto sizes = no_throw("estimating", [&] { return Trial(state, options).run(numbers, executor); });
  if (!sizes) return tl::unexpected(name_file(std::move(sizes).error(), state.name()));
  return sizes;
}

}  // namespace bitsnap::save
