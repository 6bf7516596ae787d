// The search for inputs, stream by stream, and the ranks that follow from what is found.
#include "save/stream_jobs.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/hash.hpp"
#include "base/try.hpp"
#include "container/chunk_table.hpp"
#include "plan/candidates.hpp"
#include "quantize/update_step.hpp"
#include "save/step_finder.hpp"
#include "save/twin_finder.hpp"
#include "tensor/row_elements.hpp"

namespace bitsnap::save {
namespace {

class JobMaker {
 public:
  JobMaker(container::Index& index, const PipelineParts& parts, InputTable& inputs)
      : index_(index),
        streams_(index.streams.streams),
        encodings_(index.encoding.streams),
        parts_(parts),
        inputs_(inputs),
        bases_(streams_.size()),
        steps_(streams_.size()),
        peers_(streams_.size()),
        twins_(streams_.size()) {}

  Result<StreamJobs> make() {
    if (parts_.bases != nullptr) BITSNAP_TRY(find_bases());
    find_multiples();
    // A file that loses some bases has copied chunks that fix the ranks of most streams.
    const bool may_take_steps = parts_.stored == nullptr || parts_.rules.bases_are_later;
    if (may_take_steps && plan::codes_with_optimizer_steps(parts_.settings)) find_optimizer_steps();
    if (plan::codes_with_peers(parts_.settings)) {
      find_peers_of_all();
      find_twins_of_all();
    }
    StreamJobs made;
    for (std::size_t i = 0; i < streams_.size(); ++i) made.jobs.push_back(make_job(i, made.planners));
    return made;
  }

 private:
  using OptionalPeers = std::vector<std::optional<PeerStream>>;

  [[nodiscard]] Role role_of(std::size_t stream) const {
    const auto& tensor = streams_[stream].tensor;
    return tensor ? index_.content.tensors[*tensor].role : Role::other;
  }

  [[nodiscard]] bool is_all_stored(std::size_t stream) const {
    if (parts_.stored == nullptr) return false;
    const auto& first = index_.streams.first_chunk;
    for (std::uint64_t number = first[stream]; number < first[stream + 1]; ++number) {
      if (!parts_.stored->contains(static_cast<std::size_t>(number))) return false;
    }
    return true;
  }

  // Opens bases only for streams that a base could help.
  Result<void> find_bases() {
    parts_.bases->begin(index_.content.tensors);
    for (std::size_t i = 0; i < bases_.size(); ++i) {
      const StreamInfo& stream = streams_[i];
      if (is_all_stored(i)) continue;
      const plan::StreamPlanner planner(parts_.settings, {.dtype = stream.dtype,
                                                          .role = role_of(i),
                                                          .is_pool = !stream.tensor,
                                                          .has_base = parts_.rules.max_depth > 0});
      if (!planner.wants_base() && !plan::codes_with_optimizer_steps(parts_.settings)) continue;
      BITSNAP_ASSIGN(bases_[i], stream.tensor ? parts_.bases->find(index_.content.tensors[*stream.tensor], stream)
                                              : parts_.bases->find_pool(stream));
      if (!bases_[i] && stream.tensor) {
        BITSNAP_ASSIGN(bases_[i], find_renamed(i));
      }
      if (bases_[i] && !inputs_.keep_place(*bases_[i]->base)) bases_[i].reset();
    }
    return {};
  }

  Result<std::optional<BaseStream>> find_renamed(std::size_t stream) const {
    const StreamInfo& info = streams_[stream];
    if (!parts_.source.can_be_sampled(stream)) return std::optional<BaseStream>();
    std::vector<std::byte> first(static_cast<std::size_t>(container::chunk_elements(info, 0)) *
                                 element_size(info.dtype));
    ReadContext context;
    if (!parts_.source.read(stream, 0, first, context)) return std::optional<BaseStream>();
    return parts_.bases->find_renamed(index_.content.tensors[*info.tensor], info, hash64(first));
  }

  [[nodiscard]] std::optional<Multiples> multiples_of(std::size_t stream) const noexcept {
    return parts_.quantized != nullptr ? parts_.quantized->multiples(stream) : std::nullopt;
  }

  // Whether a snapshot that is rewritten says that the stream holds multiples.
  [[nodiscard]] bool was_made_multiples(std::size_t stream) const noexcept {
    const auto& report = encodings_[stream].quantizer;
    return report && report->quantization == Quantization::update_step && report->adam;
  }

  // First moments that are multiples are coded against the second moments from which the scales are computed.
  void find_multiples() {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const auto multiples = multiples_of(i);
      if (!multiples) continue;
      const PeerStream second_moments{multiples->second_moments, 0};
      encodings_[i].rank = rank_behind(i, {&second_moments, 1});
      if (bases_[i]) steps_[i] = StepStreams{.of_base = {}, .peers = {second_moments}};
    }
  }

  void find_optimizer_steps() {
    if (parts_.rules.max_depth == 0 || std::ranges::none_of(bases_, &std::optional<BaseStream>::has_value)) return;
    const auto found = find_steps(index_.content, index_.streams, parts_.source, bases_, parts_.rules.bases_are_later);
    // In this order, because the ranks of parameters depend on those of moments, and averages on parameters.
    constexpr Stepped kOrder[] = {Stepped::second_moment, Stepped::parameter, Stepped::average};
    for (const Stepped stepped : kOrder) {
      const bool second_moments = stepped == Stepped::second_moment;
      for (std::size_t i = 0; i < found.size(); ++i) {
        if (!found[i] || found[i]->stepped != stepped) continue;
        // Multiples are coded against their second moments, which therefore cannot be coded against them.
        if (second_moments && (multiples_of(found[i]->moment) || was_made_multiples(found[i]->moment))) continue;
        StepStreams step;
        if (second_moments) step.of_base.push_back(*bases_[found[i]->moment]);
        for (const std::optional<std::size_t> moment : {std::optional(found[i]->moment), found[i]->square}) {
          if (!moment) continue;
          if (second_moments || !parts_.rules.bases_are_later) {
            step.peers.push_back({*moment, 0});
          } else {
            step.of_base.push_back(*bases_[*moment]);
          }
        }
        encodings_[i].rank = rank_behind(i, step.peers);
        steps_[i] = std::move(step);
      }
    }
  }

  // The lowest rank with which the stream comes after all its peers.
  [[nodiscard]] std::uint8_t rank_behind(std::size_t stream, std::span<const PeerStream> peers) const {
    std::uint8_t rank = encodings_[stream].rank;
    for (const PeerStream& peer : peers) {
      const std::uint8_t before = encodings_[peer.stream].rank;
      if (std::pair(before, peer.stream) >= std::pair(rank, stream)) rank = static_cast<std::uint8_t>(before + 1);
    }
    return rank;
  }

  void find_peers_of_all() {
    if (parts_.stored != nullptr) {
      peers_ = peers_of_old_file();
      // Chunks that are encoded again may have had no peer, because they were coded against a base.
      const auto second_moments = second_moments_of(index_.content, index_.streams);
      for (std::size_t i = 0; i < peers_.size(); ++i) {
        if (second_moments[i] && !is_all_stored(i) && was_made_multiples(i))
          peers_[i] = PeerStream{*second_moments[i], 0};
      }
    } else {
      peers_ =
          find_peers(index_.content, index_.streams, parts_.source, {parts_.masters.begin(), parts_.masters.end()});
    }
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (const auto multiples = multiples_of(i)) peers_[i] = PeerStream{multiples->second_moments, 0};
    }
    rank_peers();
  }

  // The first peer of each stream in the file that is rewritten; sets the twins.
  [[nodiscard]] OptionalPeers peers_of_old_file() {
    OptionalPeers peers(streams_.size());
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      for (const container::StreamInput& input : encodings_[i].inputs) {
        if (input.base || peers[i]) continue;
        // Only the chunks that name this input are known to lie inside the peer. Now all of them must.
        const std::uint64_t elements = streams_[static_cast<std::size_t>(input.stream)].elements;
        if (input.element > elements || streams_[i].elements > elements - input.element) continue;
        const auto stream = static_cast<std::size_t>(input.stream);
        peers[i] = PeerStream{stream, input.element};
        if (input.element == 0 && streams_[stream].dtype == streams_[i].dtype && elements == streams_[i].elements)
          twins_[i] = stream;
      }
    }
    return peers;
  }

  // Ranks streams behind their peers. A stream that copied chunks refer to, or that steps are computed from, must keep
  // its rank; if its peer would come after it, it loses the peer.
  void rank_peers() {
    std::vector<bool> is_referred_to(encodings_.size());
    for (const container::StreamEncoding& stream : encodings_) {
      for (const container::StreamInput& input : stream.inputs) {
        if (!input.base) is_referred_to[static_cast<std::size_t>(input.stream)] = true;
      }
    }
    for (const std::optional<StepStreams>& step : steps_) {
      if (!step) continue;
      for (const PeerStream& peer : step->peers) is_referred_to[peer.stream] = true;
    }
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (!peers_[i]) continue;
      const std::uint8_t rank = encodings_[peers_[i]->stream].rank;
      if (std::pair(rank, peers_[i]->stream) < std::pair(encodings_[i].rank, i)) continue;
      if (is_referred_to[i] || rank == std::numeric_limits<std::uint8_t>::max()) {
        peers_[i].reset();
      } else {
        encodings_[i].rank = rank_behind(i, {&*peers_[i], 1});
      }
    }
  }

  // Ranks streams behind their twins. A stream that others are coded against keeps its rank; if its twin would come
  // after it, it has none.
  void find_twins_of_all() {
    if (parts_.stored == nullptr) twins_ = find_twins(index_.streams, parts_.source);
    std::vector<bool> is_referred_to(streams_.size());
    const auto refer = [&](std::span<const PeerStream> peers) {
      for (const PeerStream& peer : peers) is_referred_to[peer.stream] = true;
    };
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (steps_[i]) refer(steps_[i]->peers);
      if (peers_[i]) refer({&*peers_[i], 1});
    }
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (!twins_[i]) continue;
      const PeerStream twin{*twins_[i], 0};
      const std::uint8_t rank = encodings_[twin.stream].rank;
      const bool comes_after = std::pair(rank, twin.stream) < std::pair(encodings_[i].rank, i);
      if (!comes_after && (is_referred_to[i] || rank == std::numeric_limits<std::uint8_t>::max())) {
        twins_[i].reset();
      } else {
        encodings_[i].rank = rank_behind(i, {&twin, 1});
        refer({&twin, 1});
      }
    }
  }

  // From the quantizer, or from the loss report of the file that is rewritten.
  [[nodiscard]] std::optional<codec::Lattice> lattice_of(std::size_t stream) const {
    if (const auto multiples = multiples_of(stream)) return multiples->lattice;
    if (!was_made_multiples(stream) || !peers_[stream]) return std::nullopt;
    const LossReport& report = *encodings_[stream].quantizer;
    const auto update_step = quantize::UpdateStep::of(quantize::parameters_of(*report.adam, report.amount));
    return update_step ? std::optional(update_step->lattice()) : std::nullopt;
  }

  // Empty when a snapshot is rewritten: the file does not hold them. Its chunks of clusters are copied if possible.
  [[nodiscard]] std::span<const codec::ClusterExtent> clusters_of(std::size_t stream) const noexcept {
    if (parts_.quantized == nullptr) return {};
    return parts_.quantized->clusters(stream);
  }

  // The quantization that codecs can make use of: without its scales or clusters, it is of no use to them.
  [[nodiscard]] Quantization quantization_of(std::size_t stream, bool has_lattice) const {
    const auto report = parts_.quantized != nullptr ? parts_.quantized->report(stream) : encodings_[stream].quantizer;
    const Quantization quantization = report ? report->quantization : Quantization::exact;
    if (quantization == Quantization::update_step && !has_lattice) return Quantization::exact;
    if (quantization == Quantization::clusters && clusters_of(stream).empty()) return Quantization::exact;
    return quantization;
  }

  StreamJob make_job(std::size_t stream, std::deque<plan::StreamPlanner>& planners) {
    const StreamInfo& info = streams_[stream];
    std::optional<DType> peer_dtype;
    if (peers_[stream]) peer_dtype = streams_[peers_[stream]->stream].dtype;
    std::vector<codec::Input> step;
    if (steps_[stream]) {
      step.resize(1 + steps_[stream]->of_base.size(), {codec::InputKind::base, info.dtype, {}});
      step.resize(step.size() + steps_[stream]->peers.size(), {codec::InputKind::peer, info.dtype, {}});
    }
    const std::optional<codec::Lattice> lattice = lattice_of(stream);
    const plan::StreamPlanner& planner = planners.emplace_back(
        parts_.settings, plan::StreamTraits{.dtype = info.dtype,
                                            .role = role_of(stream),
                                            .is_pool = !info.tensor,
                                            .has_base = bases_[stream] && parts_.rules.max_depth > 0,
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
                  .twin = {},
                  .lattice = lattice,
                  .clusters = clusters_of(stream),
                  .planner = &planners.back(),
                  .is_stored = is_all_stored(stream)};
    if (peers_[stream] && planner.codes_with_peer()) {
      job.peer = peers_[stream];
      job.peer_dtype = *peer_dtype;
      job.peer_elements = streams_[job.peer->stream].elements;
    }
    if (planner.codes_with_step()) job.step = std::move(steps_[stream]);
    if (twins_[stream] && planner.detects_trivial()) job.twin = PeerStream{*twins_[stream], 0};
    return job;
  }

  const container::Index& index_;
  const std::vector<StreamInfo>& streams_;
  std::vector<container::StreamEncoding>& encodings_;
  const PipelineParts& parts_;
  InputTable& inputs_;
  // By stream.
  std::vector<std::optional<BaseStream>> bases_;
  std::vector<std::optional<StepStreams>> steps_;
  OptionalPeers peers_;
  std::vector<std::optional<std::size_t>> twins_;
};

}  // namespace

Result<StreamJobs> make_stream_jobs(container::Index& index, const PipelineParts& parts, InputTable& inputs) {
  return JobMaker(index, parts, inputs).make();
}

}  // namespace bitsnap::save
