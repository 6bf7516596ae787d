// The replay: every codec on every chunk, and the planner beside it.
#include "bench/native/stream_replay.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/hash.hpp"
#include "base/try.hpp"
#include "codec/registry_encode.hpp"
#include "plan/planner.hpp"

namespace bitsnap::bench {
namespace {

using Clock = std::chrono::steady_clock;

bool has_way(const codec::Encoder& encoder, std::optional<codec::InputKind> kind) noexcept {
  const bool on_peer = kind == codec::InputKind::peer;
  return std::ranges::any_of(std::initializer_list{DType::bf16, DType::f32, DType::u8}, [&](DType dtype) {
    const codec::Input input{kind.value_or(codec::InputKind::base), on_peer ? DType::f32 : dtype, {}};
    return encoder.decoder().accepts(dtype, {&input, kind ? 1U : 0U});
  });
}

std::int64_t number_of(codec::CodecId id, std::optional<codec::InputKind> input) {
  const auto& ways = all_ways();
  const auto found = std::ranges::find_if(
      ways, [&](const Way& way) { return way.encoder->decoder().id() == id && way.input == input; });
  return found - ways.begin();
}

}  // namespace

const std::vector<Way>& all_ways() {
  static const std::vector<Way> ways = [] {
    std::vector<Way> made;
    for (const codec::Encoder* encoder : codec::all_encoders()) {
      for (const auto kind : {std::optional<codec::InputKind>(), std::optional(codec::InputKind::base),
                              std::optional(codec::InputKind::peer)}) {
        if (has_way(*encoder, kind)) made.push_back({encoder, kind});
      }
    }
    return made;
  }();
  return ways;
}

std::string way_name(const Way& way) {
  return std::string(way.encoder->decoder().name()) + (!way.input                             ? ""
                                                       : *way.input == codec::InputKind::base ? "+base"
                                                                                              : "+peer");
}

std::size_t StreamReplay::chunks() const noexcept {
  const std::size_t chunk_bytes = kChunkElements * element_size(stream_.dtype);
  return (stream_.data.size() + chunk_bytes - 1) / chunk_bytes;
}

StreamReplay::Chunk StreamReplay::chunk(std::size_t number) const noexcept {
  const std::size_t element_bytes = element_size(stream_.dtype);
  const std::size_t begin = number * kChunkElements;
  const std::size_t elements = std::min<std::size_t>(kChunkElements, stream_.data.size() / element_bytes - begin);
  const auto part = [&](ConstByteSpan of, std::size_t width) {
    return of.empty() ? of : of.subspan(begin * width, elements * width);
  };
  return {.data = part(stream_.data, element_bytes),
          .base = {codec::InputKind::base, stream_.dtype, part(stream_.base, element_bytes)},
          .peer = {codec::InputKind::peer, DType::f32, part(stream_.peer, 4)},
          .rows = {.row_elements = stream_.row_elements,
                   .first_column = stream_.row_elements > 0 ? begin % stream_.row_elements : 0}};
}

Result<std::optional<std::size_t>> StreamReplay::try_way(const Chunk& chunk, const Way& way,
                                                         const codec::Analysis* analysis) {
  const codec::Input& input = way.input == codec::InputKind::peer ? chunk.peer : chunk.base;
  const std::span<const codec::Input> inputs(&input, way.input ? 1U : 0U);
  const std::optional<std::size_t> none;
  if (way.input && input.bytes.empty()) return none;
  if (!way.encoder->decoder().accepts(stream_.dtype, inputs)) return none;
  const codec::ChunkContext context{.dtype = stream_.dtype,
                                    .elements = chunk.data.size() / element_size(stream_.dtype),
                                    .inputs = inputs,
                                    .parameters = {},
                                    .rows = chunk.rows,
                                    .analysis = analysis};
  const Scratch::Frame frame(scratch_);
  BITSNAP_ASSIGN(const ByteSpan out, scratch_.take(way.encoder->max_encoded_size(context.dtype, context.elements)));
  return way.encoder->encode(chunk.data, context, out, scratch_);
}

Result<void> StreamReplay::encode(std::int64_t* payloads) {
  const std::size_t count = chunks();
  for (std::size_t way = 0; way < all_ways().size(); ++way) {
    for (std::size_t i = 0; i < count; ++i) {
      const Chunk own = chunk(i);
      BITSNAP_ASSIGN(const auto size, try_way(own, all_ways()[way]));
      payloads[way * count + i] = size && *size <= own.data.size() ? static_cast<std::int64_t>(*size) : -1;
    }
  }
  return {};
}

void StreamReplay::model(const plan::CostModel& model, const std::int64_t* payloads, std::int64_t* picoseconds) const {
  const std::size_t count = chunks();
  for (std::size_t number = 0; number < all_ways().size(); ++number) {
    const Way& way = all_ways()[number];
    const bool on_base = way.input == codec::InputKind::base;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t payload = payloads[number * count + i];
      const plan::CodedChunk coded{.raw_bytes = chunk(i).data.size(),
                                   .payload_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(payload, 0)),
                                   .speed = plan::recorded_speed(way.encoder->decoder().id(), stream_.dtype, on_base),
                                   .decodes = on_base ? 2U : 1U};
      picoseconds[number * count + i] = payload < 0 ? -1 : static_cast<std::int64_t>(plan::modelled_ps(model, coded));
    }
  }
}

Result<StreamReplay::Times> StreamReplay::choose(const plan::Goal& goal, std::int64_t* chosen) {
  const std::optional<DType> peer = stream_.peer.empty() ? std::nullopt : std::optional(DType::f32);
  const plan::StreamPlanner planner(Policy::lossless, stream_.dtype, stream_.role, false, !stream_.base.empty(), peer,
                                    {}, goal);
  Times times;
  for (std::size_t i = 0; i < chunks(); ++i) {
    const Chunk own = chunk(i);
    chosen[i] = 0;  // raw
    const auto begin = Clock::now();
    // As a save has it: the chunk is hashed before anything else, and in the cache then.
    const volatile std::uint64_t hash = hash64(own.data);
    static_cast<void>(hash);
    times.hash_ns += std::chrono::nanoseconds(Clock::now() - begin).count();
    if (planner.codes_with_peer()) {
      const Way rounded{codec::find_encoder(codec::CodecId::rounded_from), codec::InputKind::peer};
      BITSNAP_ASSIGN(const auto size, try_way(own, rounded));
      if (size == 1U) {
        chosen[i] = number_of(codec::CodecId::rounded_from, rounded.input);
        continue;
      }
    }
    if (planner.detects_trivial()) {
      if (!own.base.bytes.empty() && std::memcmp(own.base.bytes.data(), own.data.data(), own.data.size()) == 0) {
        chosen[i] = number_of(codec::CodecId::same, codec::InputKind::base);
        continue;
      }
      BITSNAP_ASSIGN(const auto size, try_way(own, {codec::find_encoder(codec::CodecId::constant), {}}));
      if (size) {
        chosen[i] = number_of(codec::CodecId::constant, {});
        continue;
      }
    }
    const auto start = Clock::now();
    BITSNAP_ASSIGN(const plan::Choice choice,
                   planner.choose(own.data,
                                  {.base = own.base.bytes,
                                   .peer = planner.codes_with_peer() ? own.peer.bytes : ConstByteSpan(),
                                   .rows = own.rows},
                                  scratch_));
    const auto planned = Clock::now();
    for (const plan::Candidate& candidate : choice.ranked) {
      const auto* const analysis = &candidate == choice.ranked.data() ? choice.analysis.get() : nullptr;
      BITSNAP_ASSIGN(const auto size, try_way(own, {candidate.encoder, candidate.input}, analysis));
      if (!size || *size >= own.data.size()) continue;
      chosen[i] = number_of(candidate.encoder->decoder().id(), candidate.input);
      break;
    }
    times.choose_ns += std::chrono::nanoseconds(planned - start).count();
    times.encode_ns += std::chrono::nanoseconds(Clock::now() - planned).count();
  }
  return times;
}

}  // namespace bitsnap::bench
