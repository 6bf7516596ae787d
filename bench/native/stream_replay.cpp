// The replay: every codec on every chunk, and the planner beside it.
#include "bench/native/stream_replay.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/hash.hpp"
#include "base/try.hpp"
#include "codec/registry_encode.hpp"
#include "plan/planner.hpp"
#include "plan/shared_choice.hpp"

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

std::int64_t number_of(const Way& wanted) {
  const auto& ways = all_ways();
  const auto found = std::ranges::find_if(ways, [&](const Way& way) {
    return way.encoder == wanted.encoder && way.input == wanted.input && way.takes_step == wanted.takes_step;
  });
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
      const std::array step{codec::Input{codec::InputKind::base, DType::f32, {}},
                            codec::Input{codec::InputKind::peer, DType::f32, {}},
                            codec::Input{codec::InputKind::peer, DType::f32, {}}};
      if (encoder->decoder().accepts(DType::f32, step)) made.push_back({encoder, codec::InputKind::base, true});
    }
    return made;
  }();
  return ways;
}

std::string way_name(const Way& way) {
  return std::string(way.encoder->decoder().name()) + (way.takes_step                         ? "+step"
                                                       : !way.input                           ? ""
                                                       : *way.input == codec::InputKind::base ? "+base"
                                                                                              : "+peer");
}

std::size_t StreamReplay::chunks() const noexcept {
  const std::size_t chunk_bytes = kChunkElements * element_size(stream_.dtype);
  return (stream_.data.size() + chunk_bytes - 1) / chunk_bytes;
}

StreamReplay::Chunk StreamReplay::chunk(std::size_t number) const {
  const std::size_t element_bytes = element_size(stream_.dtype);
  const std::size_t begin = number * kChunkElements;
  const std::size_t elements = std::min<std::size_t>(kChunkElements, stream_.data.size() / element_bytes - begin);
  const auto part = [&](ConstByteSpan of, std::size_t width) {
    return of.empty() ? of : of.subspan(begin * width, elements * width);
  };
  std::vector<codec::Input> step;
  if (!stream_.step.empty()) step.push_back({codec::InputKind::base, stream_.dtype, part(stream_.base, element_bytes)});
  for (const codec::Input& input : stream_.step) step.push_back({input.kind, input.dtype, part(input.bytes, 4)});
  return {.data = part(stream_.data, element_bytes),
          .base = {codec::InputKind::base, stream_.dtype, part(stream_.base, element_bytes)},
          .peer = {codec::InputKind::peer, DType::f32, part(stream_.peer, 4)},
          .step = std::move(step),
          .rows = {.row_elements = stream_.row_elements,
                   .first_column = stream_.row_elements > 0 ? begin % stream_.row_elements : 0}};
}

Result<std::optional<std::size_t>> StreamReplay::try_way(const Chunk& chunk, const Way& way,
                                                         const codec::Analysis* analysis) {
  const codec::Input& input = way.input == codec::InputKind::peer ? chunk.peer : chunk.base;
  const std::span<const codec::Input> inputs =
      way.takes_step ? std::span(chunk.step) : std::span(&input, way.input ? 1U : 0U);
  const std::optional<std::size_t> none;
  if (way.takes_step ? chunk.step.empty() : way.input && input.bytes.empty()) return none;
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

Precedents::Group& Precedents::next_of(const std::string& like) {
  Group& group = groups[like];
  if (group.members++ == plan::kLikeChunks) group = {.members = 1, .choice = {}};
  return group;
}

Result<std::int64_t> StreamReplay::trivial_way(const Chunk& chunk, const plan::StreamPlanner& planner) {
  if (planner.codes_with_peer()) {
    const Way rounded{codec::find_encoder(codec::CodecId::rounded_from), codec::InputKind::peer};
    BITSNAP_ASSIGN(const auto size, try_way(chunk, rounded));
    if (size == 1U) return number_of(rounded);
  }
  if (planner.detects_trivial()) {
    if (!chunk.base.bytes.empty() && std::memcmp(chunk.base.bytes.data(), chunk.data.data(), chunk.data.size()) == 0) {
      return number_of({codec::find_encoder(codec::CodecId::same), codec::InputKind::base});
    }
    const Way constant{codec::find_encoder(codec::CodecId::constant), {}};
    BITSNAP_ASSIGN(const auto size, try_way(chunk, constant));
    if (size) return number_of(constant);
  }
  return -1;
}

Result<StreamReplay::Coded> StreamReplay::encode_as_chosen(const Chunk& chunk, const plan::Choice& choice) {
  for (const plan::Candidate& candidate : choice.ranked) {
    const auto* const analysis = &candidate == choice.ranked.data() ? choice.analysis.get() : nullptr;
    const Way way{candidate.encoder, candidate.input, candidate.takes_step};
    BITSNAP_ASSIGN(const auto size, try_way(chunk, way, analysis));
    if (size && *size < chunk.data.size()) return Coded{number_of(way), *size};
  }
  return Coded{0, chunk.data.size()};
}

Result<StreamReplay::Times> StreamReplay::choose(const plan::Goal& goal, Precedents& precedents, std::int64_t* chosen) {
  const std::optional<DType> peer = stream_.peer.empty() ? std::nullopt : std::optional(DType::f32);
  const std::vector<codec::Input> step = chunks() > 0 ? chunk(0).step : std::vector<codec::Input>();
  const plan::StreamPlanner planner(Policy::lossless, stream_.dtype, stream_.role, false, !stream_.base.empty(), peer,
                                    step, goal);
  Times times;
  auto lap = Clock::now();
  const auto take_lap = [&lap](std::int64_t& ns) {
    const auto now = Clock::now();
    ns += std::chrono::nanoseconds(now - lap).count();
    lap = now;
  };
  for (std::size_t i = 0; i < chunks(); ++i) {
    const Chunk own = chunk(i);
    Precedents::Group& group = precedents.next_of(stream_.like);
    lap = Clock::now();
    // As a save has it: the chunk is hashed before anything else, and in the cache then.
    const volatile std::uint64_t hash = hash64(own.data);
    static_cast<void>(hash);
    take_lap(times.hash_ns);
    BITSNAP_ASSIGN(chosen[i], trivial_way(own, planner));
    if (chosen[i] >= 0) continue;
    const plan::Surroundings around{.base = own.base.bytes,
                                    .peer = planner.codes_with_peer() ? own.peer.bytes : ConstByteSpan(),
                                    .step = own.step,
                                    .rows = own.rows};
    lap = Clock::now();
    std::optional<plan::Coded> known;
    if (group.choice) {
      const auto followed = planner.follow(*group.choice, own.data, around);
      take_lap(times.choose_ns);
      if (followed) {
        BITSNAP_ASSIGN(const Coded coded, encode_as_chosen(own, *followed));
        chosen[i] = coded.way;
        if (coded.way != 0 && plan::StreamPlanner::is_as_expected(*followed, coded.bytes)) {
          take_lap(times.encode_ns);
          continue;
        }
        if (coded.way != 0) known = plan::Coded{followed->candidate, coded.bytes};
      }
    }
    auto coding_ns = std::int64_t{0};
    take_lap(coding_ns);
    BITSNAP_ASSIGN(const plan::Choice choice, planner.choose(own.data, around, scratch_, known));
    if (!group.choice && plan::StreamPlanner::is_precedent(choice)) group.choice = choice;
    take_lap(times.choose_ns);
    if (known && known->candidate == choice.candidate) {
      times.encode_ns += coding_ns;
      continue;
    }
    times.choose_ns += coding_ns;  // in vain
    BITSNAP_ASSIGN(const Coded coded, encode_as_chosen(own, choice));
    chosen[i] = coded.way;
    take_lap(times.encode_ns);
  }
  return times;
}

}  // namespace bitsnap::bench
