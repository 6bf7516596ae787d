// The steps of encoding one chunk, in the order of encode().
#include "save/chunk_encoder.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.hpp"
#include "base/hash.hpp"
#include "base/try.hpp"
#include "codec/registry_encode.hpp"
#include "container/layout.hpp"

namespace bitsnap::save {
namespace {

// The payload, or nullopt if the codec cannot express the chunk.
Result<std::optional<ConstByteSpan>> try_codec(const codec::Encoder& encoder, ConstByteSpan data,
                                               const codec::EncodeContext& context, Scratch& scratch) {
  BITSNAP_ASSIGN(const ByteSpan out, scratch.take(encoder.max_encoded_size(context.dtype, context.elements)));
  BITSNAP_ASSIGN(const std::optional<std::size_t> size, encoder.encode(data, context, out, scratch));
  if (!size) return std::optional<ConstByteSpan>();
  return std::optional<ConstByteSpan>(out.first(*size));
}

Result<ChunkHolder> holder_of(const BaseStream& from, std::uint64_t chunk) {
  BITSNAP_ASSIGN(ChunkHolder holder, from.base->holder(from.stream, chunk));
  if (holder.base == nullptr) holder.base = from.base;
  return holder;
}

}  // namespace

bool ChunkEncoder::may_refer(const ChunkHolder& holder) const {
  if (std::ranges::find(rules_.barred, holder.base->id()) != rules_.barred.end()) return false;
  return rules_.max_depth > 0 ? holder.own_depth < container::kMaxDepth : holder.depth == 0;
}

Result<ConstByteSpan> ChunkEncoder::read_elements(const BaseStream& from, std::uint64_t chunk) {
  BITSNAP_ASSIGN(const ByteSpan bytes, context_.scratch().take(data_.size()));
  context_.restart();
  BITSNAP_TRY(from.base->read_elements(from.stream, chunk * kChunkElements, bytes, context_));
  return ConstByteSpan(bytes);
}

Result<ChunkEncoder::BaseBytes> ChunkEncoder::read_base(const StreamJob& job, std::uint64_t chunk) {
  BaseBytes base;
  base.use.stream = &*job.base;
  BITSNAP_ASSIGN(base.use.holder, holder_of(*job.base, chunk));
  const ChunkHolder& holder = base.use.holder;
  if (!may_refer(holder)) return BaseBytes{};
  base.only_if_equal = holder.depth + 1 > rules_.max_depth;
  const bool may_be_equal = job.planner->detects_trivial() && holder.decoded_hash.value_or(hash_) == hash_;
  const bool may_be_coded_against = job.planner->codes_with_base() && !base.only_if_equal;
  if (!may_be_equal && !may_be_coded_against) return BaseBytes{};
  BITSNAP_ASSIGN(base.bytes, read_elements(*job.base, chunk));
  return base;
}

Result<ChunkEncoder::PeerBytes> ChunkEncoder::read_peer(const StreamJob& job, std::uint64_t chunk,
                                                        const PeerStream& from, DType dtype, std::uint64_t elements) {
  const std::size_t element_bytes = element_size(dtype);
  const std::uint64_t begin = from.element + chunk * kChunkElements;
  const std::uint64_t end = begin + data_.size() / element_size(job.dtype);
  PeerBytes peer;
  peer.use.peer = from;
  peer.use.first_chunk = begin / kChunkElements;
  // Whole chunks of the peer, for their hashes.
  const std::uint64_t first = peer.use.first_chunk * kChunkElements;
  const std::uint64_t last = std::min(divide_up(end, kChunkElements) * kChunkElements, elements);
  BITSNAP_ASSIGN(const ByteSpan whole, context_.scratch().take(static_cast<std::size_t>(last - first) * element_bytes));
  context_.restart();
  BITSNAP_TRY(source_.read(from.stream, first * element_bytes, whole, context_));
  for (ConstByteSpan left = whole; !left.empty();) {
    const ConstByteSpan own = left.first(std::min<std::size_t>(left.size(), kChunkElements * element_bytes));
    peer.use.hashes[peer.use.chunks++] = hash64(own);
    left = left.subspan(own.size());
  }
  peer.bytes = whole.subspan(static_cast<std::size_t>(begin - first) * element_bytes,
                             static_cast<std::size_t>(end - begin) * element_bytes);
  return peer;
}

Result<ChunkEncoder::StepBytes> ChunkEncoder::read_step(const StreamJob& job, std::uint64_t chunk,
                                                        const BaseBytes& base, const PeerBytes& own_peer) {
  StepBytes step;
  const auto add = [&](codec::InputKind kind, ConstByteSpan bytes, const auto& use) {
    step.inputs.push_back({kind, job.dtype, bytes});
    step.uses.emplace_back(use);
  };
  add(codec::InputKind::base, base.bytes, base.use);
  for (const BaseStream& moment : job.step->of_base) {
    BaseUse use{.stream = &moment, .holder = {}};
    BITSNAP_ASSIGN(use.holder, holder_of(moment, chunk));
    if (!may_refer(use.holder) || use.holder.depth + 1 > rules_.max_depth) return StepBytes{};
    BITSNAP_ASSIGN(const ConstByteSpan bytes, read_elements(moment, chunk));
    add(codec::InputKind::base, bytes, use);
  }
  for (const PeerStream& moment : job.step->peers) {
    PeerBytes peer = own_peer;
    if (!job.peer || !(*job.peer == moment)) {
      BITSNAP_ASSIGN(peer, read_peer(job, chunk, moment, job.dtype, job.elements));
    }
    add(codec::InputKind::peer, peer.bytes, peer.use);
  }
  return step;
}

Result<std::optional<ConstByteSpan>> ChunkEncoder::as_rounding(const StreamJob& job, const PeerBytes& peer) {
  const codec::Input input{codec::InputKind::peer, job.peer_dtype, peer.bytes};
  const codec::EncodeContext context{{job.dtype, data_.size() / element_size(job.dtype), {&input, 1}}};
  const codec::Encoder& encoder = *codec::find_encoder(codec::CodecId::rounded_from);
  if (!encoder.decoder().accepts(context.dtype, context.inputs)) return std::optional<ConstByteSpan>();
  BITSNAP_ASSIGN(const auto payload, try_codec(encoder, data_, context, context_.scratch()));
  return payload && payload->size() == 1 ? payload : std::nullopt;
}

Result<EncodedChunk> ChunkEncoder::encode(const StreamJob& job, std::uint64_t chunk, plan::Seat& seat) {
  const std::size_t element_bytes = element_size(job.dtype);
  const std::uint64_t first = chunk * kChunkElements;
  const auto elements = static_cast<std::size_t>(std::min(kChunkElements, job.elements - first));
  BITSNAP_ASSIGN(const ByteSpan data, free_scratch().take(elements * element_bytes));
  context_.restart();
  lost_ = {};
  BITSNAP_TRY(source_.read_to_store(job.stream, first * element_bytes, data, context_, lost_));
  data_ = data;
  hash_ = hash64(data);
  rows_ = {.row_elements = job.row_elements,
           .first_column = job.row_elements > 0 ? static_cast<std::size_t>(first % job.row_elements) : 0};

  if (job.twin) {
    BITSNAP_ASSIGN(const PeerBytes twin, read_peer(job, chunk, *job.twin, job.dtype, job.elements));
    if (std::memcmp(twin.bytes.data(), data_.data(), data_.size()) == 0) {
      if (tap_ != nullptr) tap_->take(job.stream, first * element_bytes, data_);
      return unchanged(twin.use);
    }
  }
  Inputs inputs;
  std::optional<ConstByteSpan> rounded;
  if (job.peer) {
    BITSNAP_ASSIGN(inputs.peer, read_peer(job, chunk, *job.peer, job.peer_dtype, job.peer_elements));
    if (!job.lattice) {
      BITSNAP_ASSIGN(rounded, as_rounding(job, inputs.peer));
    }
  }
  // A weight that follows from its master needs no base; reading one would decode the master's base again.
  if (job.base && !rounded) {
    BITSNAP_ASSIGN(inputs.base, read_base(job, chunk));
  }
  if (tap_ != nullptr) tap_->take(job.stream, first * element_bytes, data_);
  if (rounded) {
    EncodedChunk encoded = raw();
    encoded.codec = codec::CodecId::rounded_from;
    encoded.payload = *rounded;
    encoded.inputs.emplace_back(inputs.peer.use);
    return encoded;
  }

  if (job.planner->detects_trivial() && !inputs.base.bytes.empty() &&
      std::memcmp(inputs.base.bytes.data(), data_.data(), data_.size()) == 0) {
    return unchanged(inputs.base.use);
  }
  if (inputs.base.only_if_equal) inputs.base.bytes = {};
  if (job.step && !inputs.base.bytes.empty()) {
    BITSNAP_ASSIGN(inputs.step, read_step(job, chunk, inputs.base, inputs.peer));
  }
  return code(job, inputs, seat);
}

Result<EncodedChunk> ChunkEncoder::encode_alone(const StreamJob& job) {
  plan::Seat alone;
  return code(job, {}, alone);
}

EncodedChunk ChunkEncoder::raw() const {
  EncodedChunk encoded;
  encoded.payload = data_;
  encoded.decoded_hash = hash_;
  encoded.raw_bytes = data_.size();
  encoded.lost = lost_;
  return encoded;
}

EncodedChunk ChunkEncoder::unchanged(const std::variant<BaseUse, PeerUse>& from) const {
  EncodedChunk encoded = raw();
  encoded.codec = codec::CodecId::same;
  encoded.payload = {};
  encoded.inputs.emplace_back(from);
  return encoded;
}

plan::Surroundings ChunkEncoder::surroundings_of(const StreamJob& job, const Inputs& inputs) const {
  return {.base = {codec::InputKind::base, job.dtype, inputs.base.bytes},
          .peer = {codec::InputKind::peer, job.peer_dtype, inputs.peer.bytes},
          .step = inputs.step.inputs,
          .rows = rows_,
          .lattice = job.lattice,
          .clusters = job.clusters,
          .base_depth = inputs.base.use.holder.depth};
}

Result<EncodedChunk> ChunkEncoder::code(const StreamJob& job, const Inputs& inputs, plan::Seat& seat) {
  Scratch& scratch = context_.scratch();
  EncodedChunk encoded = raw();
  if (job.planner->detects_trivial()) {
    const codec::EncodeContext context{{job.dtype, data_.size() / element_size(job.dtype)}, rows_};
    BITSNAP_ASSIGN(const auto constant,
                   try_codec(*codec::find_encoder(codec::CodecId::constant), data_, context, scratch));
    if (constant && constant->size() < data_.size()) {
      encoded.codec = codec::CodecId::constant;
      encoded.payload = *constant;
      return encoded;
    }
  }

  const plan::Surroundings around = surroundings_of(job, inputs);
  std::optional<plan::KnownSize> known;
  if (const plan::Choice* const precedent = seat.wait_for_precedent()) {
    if (auto followed = job.planner->follow(*precedent, data_, around)) {
      encoded.choice = std::move(*followed);
      BITSNAP_ASSIGN(const bool is_coded, encode_as_chosen(job, inputs, encoded));
      if (is_coded) {
        if (plan::StreamPlanner::is_as_expected(encoded.choice, encoded.payload.size())) return encoded;
        known = plan::KnownSize{encoded.choice.candidate, encoded.payload.size()};
      }
    }
  }
  BITSNAP_ASSIGN(encoded.choice, job.planner->choose(data_, around, scratch, known));
  if (plan::StreamPlanner::is_precedent(encoded.choice)) {
    plan::Choice precedent = encoded.choice;
    precedent.analysis.reset();
    precedent.origin = job.stream;
    seat.settle(std::move(precedent));
  }
  if (known && encoded.choice.candidate == known->candidate) return encoded;
  BITSNAP_TRY(encode_again(job, inputs, encoded));
  if (known || !job.planner->is_misjudged(encoded.choice, encoded.payload.size())) return encoded;
  known = plan::KnownSize{encoded.choice.candidate, encoded.payload.size()};
  BITSNAP_ASSIGN(encoded.choice, job.planner->choose(data_, around, scratch, known));
  if (encoded.choice.candidate != known->candidate) BITSNAP_TRY(encode_again(job, inputs, encoded));
  return encoded;
}

Result<void> ChunkEncoder::encode_again(const StreamJob& job, const Inputs& inputs, EncodedChunk& encoded) {
  plan::Choice choice = std::move(encoded.choice);
  encoded = raw();
  encoded.choice = std::move(choice);
  BITSNAP_TRY(encode_as_chosen(job, inputs, encoded));
  return {};
}

Result<bool> ChunkEncoder::encode_as_chosen(const StreamJob& job, const Inputs& inputs, EncodedChunk& encoded) {
  const plan::Surroundings around = surroundings_of(job, inputs);
  codec::EncodeContext context{
      {job.dtype, data_.size() / element_size(job.dtype)}, around.rows, around.lattice, around.clusters};
  bool is_coded = false;
  for (const plan::Candidate& tried : encoded.choice.ranked) {
    context.inputs = *around.inputs_of(tried);
    context.analysis = &tried == encoded.choice.ranked.data() ? encoded.choice.analysis.get() : nullptr;
    BITSNAP_ASSIGN(const auto payload, try_codec(*tried.encoder, data_, context, context_.scratch()));
    if (!payload || payload->size() >= data_.size()) continue;
    encoded.codec = tried.encoder->decoder().id();
    encoded.payload = *payload;
    switch (tried.inputs) {
      case plan::CandidateInputs::none: break;
      case plan::CandidateInputs::base: encoded.inputs.emplace_back(inputs.base.use); break;
      case plan::CandidateInputs::peer: encoded.inputs.emplace_back(inputs.peer.use); break;
      case plan::CandidateInputs::optimizer_step: encoded.inputs = inputs.step.uses; break;
    }
    is_coded = true;
    break;
  }
  encoded.choice.analysis.reset();
  return is_coded;
}

}  // namespace bitsnap::save
