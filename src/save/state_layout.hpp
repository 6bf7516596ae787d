// Checks a caller's state and turns it into the content of a snapshot, with small tensors in the pool
// (docs/spec/snapshot.md, "Content").
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/writer.hpp>

#include "base/bytes.hpp"
#include "container/directory.hpp"
#include "save/peer_finder.hpp"
#include "save/stream_source.hpp"

namespace bitsnap::save {

// Smaller tensors share the pool: a chunk of their own would cost more in tables than coding it saves
// (docs/decisions/0003-pool-of-small-tensors.md).
inline constexpr std::uint64_t kPoolTensorBytes = 4096;

// Fails with invalid_argument, naming the tensor, for names that are too long or used twice, sizes that do not match
// the shape, aliases of nothing, parts outside their sharded tensor, and sources without bytes.
[[nodiscard]] Result<container::Content> lay_out(const State& state);
// The same without metadata and tree.
[[nodiscard]] Result<container::Content> lay_out_tensors(const State& state);

// The masters that the caller gives, by stream. Masters of tensors in the pool are checked and not used. Fails with
// invalid_argument, naming the tensor and its master, if the master does not exist, is not F32 or has too few elements,
// if the tensor is neither BF16 nor F16, or if tensors with the same bytes have different masters. Precondition:
// content and streams are those of the state.
[[nodiscard]] Result<std::vector<std::optional<PeerStream>>> lay_out_masters(const State& state,
                                                                             const container::Content& content,
                                                                             const container::StreamTable& streams);

// Reads the streams of a caller's state. Everything passed to the constructor outlives it. Thread-safe if the caller's
// sources are.
class StreamReader final : public StreamSource {
 public:
  StreamReader(const State& state, const container::Content& content, const container::StreamTable& streams);

  Result<void> read(std::size_t stream, std::uint64_t offset, ByteSpan out, ReadContext& context) const override;
  bool can_be_sampled(std::size_t stream) const noexcept override;

 private:
  Result<void> read_tensor(std::size_t tensor, std::uint64_t offset, ByteSpan out) const;

  const State& state_;
  const container::Content& content_;
  const container::StreamTable& streams_;
  std::vector<std::size_t> pooled_;  // tensors in the pool, by offset
};

}  // namespace bitsnap::save
