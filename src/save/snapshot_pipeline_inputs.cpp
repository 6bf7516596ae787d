// Which streams are coded against what, and the order of chunks that follows from it.
#include "save/snapshot_pipeline.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "quantize/update_step.hpp"
#include "save/step_finder.hpp"
#include "tensor/row_elements.hpp"

namespace bitsnap::save {
Result<void> SnapshotPipeline::prepare_streams() {
  const std::size_t streams = index_.streams.streams.size();
  bases_.resize(streams);
  steps_.resize(streams);
  peers_.resize(streams);
  lost_.resize(streams);
  if (parts_.bases != nullptr) parts_.bases->begin(index_.content.tensors);
  BITSNAP_TRY(find_bases());
  find_multiples();
  // Chunks that are taken over have inputs already, by the ranks that streams have.
  if (parts_.stored == nullptr && plan::codes_with_optimizer_steps(parts_.settings)) find_optimizer_steps();
  if (plan::codes_with_peers(parts_.settings)) find_rounding_peers();
  for (std::size_t i = 0; i < streams; ++i) jobs_.push_back(make_job(i));
  return {};
}

Result<void> SnapshotPipeline::find_bases() {
  if (parts_.bases == nullptr) return {};
  for (std::size_t i = 0; i < bases_.size(); ++i) {
    const StreamInfo& stream = index_.streams.streams[i];
    if (is_all_stored(i)) continue;
    const plan::StreamPlanner planner(
        parts_.settings,
        {.dtype = stream.dtype, .role = role_of(i), .is_pool = !stream.tensor, .has_base = parts_.rules.max_depth > 0});
    if (!planner.wants_base() && !plan::codes_with_optimizer_steps(parts_.settings)) continue;
    BITSNAP_ASSIGN(bases_[i], stream.tensor ? parts_.bases->find(index_.content.tensors[*stream.tensor], stream)
                                            : parts_.bases->find_pool(stream));
    // One that the table of bases may have no room for is none.
    if (bases_[i] && !inputs_->keep_place(*bases_[i]->base)) bases_[i].reset();
  }
  return {};
}

std::optional<QuantizedSource::Multiples> SnapshotPipeline::multiples_of(std::size_t stream) const noexcept {
  return parts_.quantized != nullptr ? parts_.quantized->multiples(stream) : std::nullopt;
}

// update_step only where what elements are multiples of is known, and clusters where these are.
Quantization SnapshotPipeline::quantization_of(std::size_t stream, bool are_multiples) const {
  const auto promise = parts_.quantized != nullptr ? parts_.quantized->promise(stream) : std::nullopt;
  const auto& given = promise ? promise : index_.encoding.streams[stream].quantizer;
  const Quantization quantization = given ? given->quantization : Quantization::exact;
  if (quantization == Quantization::update_step && !are_multiples) return Quantization::exact;
  if (quantization == Quantization::clusters && clusters_of(stream).empty()) return Quantization::exact;
  return quantization;
}

bool SnapshotPipeline::holds_multiples(std::size_t stream) const noexcept {
  const auto& given = index_.encoding.streams[stream].quantizer;
  return given && given->quantization == Quantization::update_step && given->adam;
}

// Of what is written again, by what was said of it.
std::optional<codec::Lattice> SnapshotPipeline::lattice_of(std::size_t stream) const {
  if (const auto multiples = multiples_of(stream)) return multiples->lattice;
  if (!holds_multiples(stream) || !peers_[stream]) return std::nullopt;
  const auto& given = index_.encoding.streams[stream].quantizer;
  const auto update_step = quantize::UpdateStep::of(QuantizedSource::parameters_of(*given->adam, given->amount));
  return update_step ? std::optional(update_step->lattice()) : std::nullopt;
}

// Nobody knows those of what is written again: chunks that hold them are taken over.
std::span<const codec::ClusterExtent> SnapshotPipeline::clusters_of(std::size_t stream) const noexcept {
  if (parts_.quantized == nullptr) return {};
  return parts_.quantized->clusters(stream);
}

void SnapshotPipeline::find_multiples() {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const auto multiples = multiples_of(i);
    if (!multiples) continue;
    const PeerStream squares{multiples->squares, 0};
    index_.encoding.streams[i].rank = rank_behind(i, {&squares, 1});
    if (bases_[i]) steps_[i] = StepStreams{.before = {}, .after = {squares}};
  }
}

void SnapshotPipeline::find_optimizer_steps() {
  if (parts_.rules.max_depth == 0 || std::ranges::none_of(bases_, &std::optional<BaseStream>::has_value)) return;
  const auto found = find_steps(index_.content, index_.streams, parts_.source, bases_);
  // Second moments first: parameters are ranked behind them.
  for (const bool squares : {true, false}) {
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (!found[i] || found[i]->is_square != squares) continue;
      if (squares && multiples_of(found[i]->moment)) continue;  // these need the squares
      StepStreams step;
      if (squares) step.before = bases_[found[i]->moment];
      step.after.push_back({found[i]->moment, 0});
      if (found[i]->square) step.after.push_back({*found[i]->square, 0});
      index_.encoding.streams[i].rank = rank_behind(i, step.after);
      steps_[i] = std::move(step);
    }
  }
}

// The least with which all of them come before.
std::uint8_t SnapshotPipeline::rank_behind(std::size_t stream, std::span<const PeerStream> peers) {
  const auto& streams = index_.encoding.streams;
  std::uint8_t rank = streams[stream].rank;
  for (const PeerStream& peer : peers) {
    const std::uint8_t before = streams[peer.stream].rank;
    if (std::pair(before, peer.stream) >= std::pair(rank, stream)) rank = static_cast<std::uint8_t>(before + 1);
  }
  return rank;
}

void SnapshotPipeline::find_rounding_peers() {
  if (parts_.stored != nullptr) {
    peers_ = peers_named();
    // What is coded anew may not have named any, as what was coded against a base or is the same as there.
    const auto squares = pair_moments(index_.content, index_.streams);
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (squares[i] && !is_all_stored(i) && holds_multiples(i)) peers_[i] = PeerStream{*squares[i], 0};
    }
  } else {
    std::vector<std::optional<PeerStream>> given(parts_.masters.begin(), parts_.masters.end());
    given.resize(peers_.size());
    std::vector<bool> wanted(peers_.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = !given[i] && !is_all_stored(i);
    peers_ = find_peers(index_.content, index_.streams, parts_.source, wanted);
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (given[i]) peers_[i] = given[i];
    }
  }
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (const auto multiples = multiples_of(i)) peers_[i] = PeerStream{multiples->squares, 0};
  }
  rank_peers();
}

StreamJob SnapshotPipeline::make_job(std::size_t stream) {
  const StreamInfo& info = index_.streams.streams[stream];
  total_bytes_ += info.elements * element_size(info.dtype);
  std::optional<DType> peer_dtype;
  if (peers_[stream]) peer_dtype = index_.streams.streams[peers_[stream]->stream].dtype;
  std::vector<codec::Input> step;
  if (steps_[stream]) {
    step.push_back({codec::InputKind::base, DType::f32, {}});
    if (steps_[stream]->before) step.push_back({codec::InputKind::base, DType::f32, {}});
    step.resize(step.size() + steps_[stream]->after.size(), {codec::InputKind::peer, DType::f32, {}});
  }
  const bool builds_on_base = bases_[stream] && parts_.rules.max_depth > 0;
  const std::optional<codec::Lattice> lattice = lattice_of(stream);
  planners_.emplace_back(parts_.settings,
                         plan::StreamTraits{.dtype = info.dtype,
                                            .role = role_of(stream),
                                            .is_pool = !info.tensor,
                                            .has_base = builds_on_base,
                                            .peer_dtype = peer_dtype,
                                            .step_inputs = step,
                                            .quantization = quantization_of(stream, lattice.has_value())});
  StreamJob job{.stream = stream,
                .dtype = info.dtype,
                .elements = info.elements,
                .row_elements = info.tensor ? tensor::row_elements(index_.content.tensors[*info.tensor].shape) : 0,
                .base = bases_[stream],
                .peer = {},
                .step = {},
                .lattice = lattice,
                .clusters = clusters_of(stream),
                .planner = &planners_.back(),
                .is_stored = is_all_stored(stream)};
  if (peers_[stream] && planners_.back().codes_with_peer()) {
    job.peer = peers_[stream];
    job.peer_dtype = *peer_dtype;
    job.peer_elements = index_.streams.streams[job.peer->stream].elements;
  }
  if (planners_.back().codes_with_step()) job.step = std::move(steps_[stream]);
  return job;
}

Role SnapshotPipeline::role_of(std::size_t stream) const {
  const auto& tensor = index_.streams.streams[stream].tensor;
  return tensor ? index_.content.tensors[*tensor].role : Role::other;
}

std::vector<std::optional<PeerStream>> SnapshotPipeline::peers_named() const {
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

// One that is referred to keeps its rank.
void SnapshotPipeline::rank_peers() {
  auto& streams = index_.encoding.streams;
  std::vector<bool> is_referred_to(streams.size());
  for (const container::StreamEncoding& stream : streams) {
    for (const container::StreamInput& input : stream.inputs) {
      if (!input.base) is_referred_to[static_cast<std::size_t>(input.stream)] = true;
    }
  }
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (!peers_[i]) continue;
    const std::uint8_t rank = streams[peers_[i]->stream].rank;
    if (std::pair(rank, peers_[i]->stream) < std::pair(streams[i].rank, i)) continue;
    if (is_referred_to[i] || rank == std::numeric_limits<std::uint8_t>::max()) {
      peers_[i].reset();
    } else {
      streams[i].rank = rank_behind(i, {&*peers_[i], 1});
    }
  }
}

// By rank; where nothing is taken over, each chunk right behind the last of its peers' that it needs, whose bytes are
// still in the cache.
void SnapshotPipeline::order_chunks() {
  const auto& first = index_.streams.first_chunk;
  std::vector<std::size_t> streams(jobs_.size());
  std::iota(streams.begin(), streams.end(), std::size_t{0});
  std::ranges::sort(streams, {}, [&](std::size_t i) { return std::pair(index_.encoding.streams[i].rank, i); });
  std::vector<std::vector<std::size_t>> followers(jobs_.size());
  if (parts_.stored == nullptr) {
    for (const StreamJob& job : jobs_) {
      for (const PeerStream& peer : peers_of(job)) followers[peer.stream].push_back(job.stream);
    }
  }
  order_.reserve(index_.chunks.size());
  std::vector<std::uint64_t> next(first.begin(), first.end());
  const auto is_ready = [&](std::size_t stream) {
    if (next[stream] == first[stream + 1]) return false;
    const StreamJob& job = jobs_[stream];
    const std::uint64_t end = std::min((next[stream] - first[stream] + 1) * kChunkElements, job.elements);
    const std::vector<PeerStream> peers = peers_of(job);
    return parts_.stored != nullptr || std::ranges::all_of(peers, [&](const PeerStream& peer) {
             const std::uint64_t done = (next[peer.stream] - first[peer.stream]) * kChunkElements;
             return peer.element + end <= done || next[peer.stream] == first[peer.stream + 1];
           });
  };
  // Followers of followers are behind them: as deep as there are ranks.
  const auto put = [&](std::size_t stream, const auto& self) -> void {
    order_.push_back(static_cast<std::size_t>(next[stream]++));
    for (const std::size_t follower : followers[stream]) {
      while (is_ready(follower)) self(follower, self);
    }
  };
  for (const std::size_t stream : streams) {
    while (is_ready(stream)) put(stream, put);
  }
}

void SnapshotPipeline::group_like_chunks() {
  std::map<std::string, plan::SharedChoice*> open;
  std::vector<std::string> keys;
  for (const StreamJob& job : jobs_) keys.push_back(likeness_key(job));
  places_.resize(index_.chunks.size());
  for (const std::size_t number : order_) {
    const std::size_t stream = stream_of(number);
    if (is_stored(number) || !index_.streams.streams[stream].tensor) continue;
    plan::SharedChoice*& group = open[keys[stream]];
    if (group == nullptr || group->members() == plan::kLikeChunks) group = &groups_.emplace_back();
    places_[number] = {group, group->add_member()};
  }
}

std::string SnapshotPipeline::likeness_key(const StreamJob& job) const {
  const auto& tensor = index_.streams.streams[job.stream].tensor;
  if (!tensor) return {};
  std::string key = fmt::format("{} {} {}", dtype_name(job.dtype), role_name(role_of(job.stream)), job.row_elements);
  for (const plan::Candidate& candidate : job.planner->candidates()) {
    key +=
        fmt::format(" {} {}", static_cast<int>(candidate.encoder->decoder().id()), static_cast<int>(candidate.inputs));
  }
  key += ' ';
  for (const char letter : index_.content.tensors[*tensor].name) {
    const bool is_digit = letter >= '0' && letter <= '9';
    if (!is_digit || key.back() != '#') key += is_digit ? '#' : letter;
  }
  return key;
}

std::vector<PeerStream> SnapshotPipeline::peers_of(const StreamJob& job) {
  std::vector<PeerStream> peers;
  if (job.step) peers = job.step->after;
  if (job.peer) peers.push_back(*job.peer);
  return peers;
}

}  // namespace bitsnap::save
