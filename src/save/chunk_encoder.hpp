// Encodes one chunk: reads its bytes once into private memory, reads its inputs, lets the planner choose, encodes, and
// stores the chunk raw if nothing is smaller. docs/architecture.md, "How a chunk is encoded", has the order.
//
// A ChunkEncoder owns the buffers of one pipeline slot. One thread at a time uses it. Its results are valid until it
// encodes the next chunk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
#include "save/stream_jobs.hpp"

namespace bitsnap::save {

// The chunks of a peer that a chunk was coded against: `chunks` chunks from `first_chunk` on, with these hashes.
struct PeerUse {
  PeerStream peer;
  std::uint64_t first_chunk = 0;
  std::array<std::uint64_t, 2> hashes = {};
  std::size_t chunks = 0;
};

// The chunk of an earlier snapshot that a chunk was coded against.
struct BaseUse {
  const BaseStream* stream = nullptr;  // in the job: the stream that was asked
  ChunkHolder holder;                  // its base is never nullptr
};

struct EncodedChunk {
  codec::CodecId codec = codec::CodecId::raw;
  ConstByteSpan payload;
  std::uint64_t decoded_hash = 0;
  std::vector<std::variant<BaseUse, PeerUse>> inputs;  // that the codec used, in its order
  plan::Choice choice;
  std::uint64_t raw_bytes = 0;
  Lost lost;
};

class ChunkEncoder {
 public:
  // One of `encoders` encoders, which share the memory for caches. `source`, `tap` (may be nullptr) and the barred ids
  // outlive it.
  ChunkEncoder(const StreamSource& source, const ReferenceRules& rules, StateTap* tap, std::size_t encoders) noexcept
      : source_(source), rules_(rules), tap_(tap), context_({}, ReadContext::remembered_bytes_of(encoders)) {}

  // `seat`: the place among similar chunks, whose choice this one may follow.
  [[nodiscard]] Result<EncodedChunk> encode(const StreamJob& job, std::uint64_t chunk, plan::Seat& seat);
  // Encodes the chunk of the last encode() again, without any input.
  [[nodiscard]] Result<EncodedChunk> encode_alone(const StreamJob& job);
  // The working memory, emptied, for a chunk that is copied.
  [[nodiscard]] Scratch& free_scratch() noexcept {
    context_.scratch().reset();
    return context_.scratch();
  }

 private:
  // The bytes that the chunk may be coded against, and what a payload that uses them refers to. Empty bytes: absent.
  struct BaseBytes {
    ConstByteSpan bytes;
    BaseUse use;
    bool only_if_equal = false;  // coding against it would exceed max_depth; referring to equal bytes does not
  };
  struct PeerBytes {
    ConstByteSpan bytes;
    PeerUse use;
  };
  struct StepBytes {
    std::vector<codec::Input> inputs;  // in the order of the codec
    std::vector<std::variant<BaseUse, PeerUse>> uses;
  };
  struct Inputs {
    BaseBytes base;
    PeerBytes peer;
    StepBytes step;
  };

  [[nodiscard]] bool may_refer(const ChunkHolder& holder) const;
  Result<ConstByteSpan> read_elements(const BaseStream& from, std::uint64_t chunk);
  // Does not decode the base if its hash differs and the chunk cannot be coded against it.
  Result<BaseBytes> read_base(const StreamJob& job, std::uint64_t chunk);
  // Reads the peer from the source again. Its hashes are compared with those of the stored peer when the chunk is
  // written.
  Result<PeerBytes> read_peer(const StreamJob& job, std::uint64_t chunk, const PeerStream& from, DType dtype,
                              std::uint64_t elements);
  // Empty if coding against one of the inputs would exceed max_depth.
  Result<StepBytes> read_step(const StreamJob& job, std::uint64_t chunk, const BaseBytes& base, const PeerBytes& peer);
  // The payload if the chunk is exactly its rounded peer: one byte, which needs no other file.
  Result<std::optional<ConstByteSpan>> as_rounding(const StreamJob& job, const PeerBytes& peer);
  [[nodiscard]] EncodedChunk raw() const;
  // A reference to equal bytes.
  [[nodiscard]] EncodedChunk unchanged(const std::variant<BaseUse, PeerUse>& from) const;
  Result<EncodedChunk> code(const StreamJob& job, const Inputs& inputs, plan::Seat& seat);
  [[nodiscard]] plan::Surroundings surroundings_of(const StreamJob& job, const Inputs& inputs) const;
  // Replaces the payload by one of the choice that `encoded` holds.
  Result<void> encode_again(const StreamJob& job, const Inputs& inputs, EncodedChunk& encoded);
  // Encodes with the first ranked candidate that shrinks the chunk; false if none does.
  Result<bool> encode_as_chosen(const StreamJob& job, const Inputs& inputs, EncodedChunk& encoded);

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
