// Codes one chunk after another: reads its bytes once into private memory, looks at the base, lets the planner choose,
// encodes, and falls back to raw.
//
// A ChunkEncoder holds the buffers of one slot of the pipeline and is used by one thread at a time. What it returns is
// valid until the next chunk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

#include "base/bytes.hpp"
#include "plan/planner.hpp"
#include "plan/shared_choice.hpp"
#include "restore/read_context.hpp"
#include "save/base_finder.hpp"
#include "save/peer_finder.hpp"
#include "save/state_tap.hpp"
#include "save/stream_source.hpp"

namespace bitsnap::save {

// What tells what the optimizer's last step made of a stream: streams of as many F32 elements, beside its own base.
struct StepStreams {
  std::optional<BaseStream> before;  // the first moment before, where the stream is the second moment
  std::vector<PeerStream> after;     // moments after
};

// One stream as it is written.
struct StreamJob {
  std::size_t stream = 0;
  DType dtype = DType::opaque;
  std::uint64_t elements = 0;
  std::size_t row_elements = 0;  // of its tensor as a matrix; 0 where it is none
  std::optional<BaseStream> base;
  std::optional<PeerStream> peer;
  DType peer_dtype = DType::opaque;
  std::uint64_t peer_elements = 0;  // of the whole stream
  std::optional<StepStreams> step;
  std::optional<codec::Lattice> lattice;                // what its elements were made multiples of, beside the peer
  std::span<const codec::ClusterExtent> clusters = {};  // what they were quantized by; whoever made the job owns it
  plan::StreamPlanner* planner = nullptr;
  bool is_stored = false;  // all its chunks are taken over: there is nothing to encode
};

// What a chunk may refer to.
struct ReferenceRules {
  std::uint32_t max_depth = 8;              // as SaveOptions::max_depth
  std::span<const SnapshotId> barred = {};  // with a max_depth of 0: snapshots that are not to be referred to
};

// What of another stream of the file a chunk was coded against: so many of its chunks from this one on, as they were
// then.
struct PeerUse {
  PeerStream peer;
  std::uint64_t first_chunk = 0;
  std::array<std::uint64_t, 2> hashes = {};
  std::size_t chunks = 0;
};

// What of an earlier snapshot.
struct BaseUse {
  const BaseStream* stream = nullptr;  // of the job: where the holder was found
  ChunkHolder holder;                  // never with a nullptr for its base
};

struct EncodedChunk {
  codec::CodecId codec = codec::CodecId::raw;
  ConstByteSpan payload;
  std::uint64_t decoded_hash = 0;
  std::vector<std::variant<BaseUse, PeerUse>> inputs;  // that the codec used, in its order
  plan::Choice choice;
  std::uint64_t raw_bytes = 0;
  Lost lost;  // before it was coded
};

class ChunkEncoder {
 public:
  // One of so many encoders. Source, tap and what the rules name outlive it; `tap` may be nullptr.
  ChunkEncoder(const StreamSource& source, const ReferenceRules& rules, StateTap* tap, std::size_t encoders) noexcept
      : source_(source), rules_(rules), tap_(tap), context_({}, ReadContext::remembered_bytes_of(encoders)) {}

  // `seat`: among the chunks that are like it.
  [[nodiscard]] Result<EncodedChunk> encode(const StreamJob& job, std::uint64_t chunk, plan::Seat& seat);
  // The chunk of the last encode() once more, without a base or a peer.
  [[nodiscard]] Result<EncodedChunk> encode_alone(const StreamJob& job);
  // The working memory, all of it free, for a chunk that is not encoded.
  [[nodiscard]] Scratch& free_scratch() noexcept {
    context_.scratch().reset();
    return context_.scratch();
  }

 private:
  // The base's bytes for this chunk, empty where they are of no use.
  struct BaseBytes {
    ConstByteSpan bytes;
    BaseUse use;
    bool deep = false;  // may be referred to, not built upon
  };
  [[nodiscard]] bool may_refer(const ChunkHolder& holder) const;
  // Decodes nothing where the base's hash differs and nothing can be built upon its bytes.
  Result<BaseBytes> read_base(const StreamJob& job, std::uint64_t chunk);
  struct PeerBytes {
    ConstByteSpan bytes;
    PeerUse use;
  };
  // From the source once more: whether it is what was stored of the peer, hashes tell when it was.
  Result<PeerBytes> read_peer(const StreamJob& job, std::uint64_t chunk, const PeerStream& from, DType dtype,
                              std::uint64_t elements);
  // What tells the optimizer's step, in the order of the codec's inputs, and what is to be said of it. Empty where one
  // of them may not be built upon.
  struct StepBytes {
    std::vector<codec::Input> inputs;
    std::vector<std::variant<BaseUse, PeerUse>> uses;
  };
  Result<StepBytes> read_step(const StreamJob& job, std::uint64_t chunk, const BaseBytes& base, const PeerBytes& peer);
  // The payload of a chunk that its peer says all of: that is less than anything else, and leads to no other file, as
  // an unchanged chunk does.
  Result<std::optional<ConstByteSpan>> as_rounding(const StreamJob& job, const PeerBytes& peer);
  [[nodiscard]] EncodedChunk raw() const;
  Result<EncodedChunk> code(const StreamJob& job, const BaseBytes& base, const PeerBytes& peer, const StepBytes& step,
                            plan::Seat& seat);
  [[nodiscard]] plan::Surroundings surroundings_of(const StreamJob& job, const BaseBytes& base, const PeerBytes& peer,
                                                   const StepBytes& step) const;
  // With the first in rank that makes it less than raw. False where none does.
  Result<bool> encode_as_chosen(const StreamJob& job, const BaseBytes& base, const PeerBytes& peer,
                                const StepBytes& step, EncodedChunk& encoded);

  const StreamSource& source_;
  ReferenceRules rules_;
  StateTap* tap_;
  ReadContext context_;
  ConstByteSpan data_;  // the chunk, in the scratch
  codec::RowPlace rows_;
  std::uint64_t hash_ = 0;
  Lost lost_;
};

}  // namespace bitsnap::save
