// From a caller's state to the content of a snapshot: checks every claim of the caller, and places small tensors in the
// pool.
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

// Tensors below this many bytes share the pool: a chunk of their own would cost more in tables than coding them saves.
inline constexpr std::uint64_t kPoolTensorBytes = 4096;

// invalid_argument, naming the tensor, for names that are too long or stand twice, sizes that do not fit the shape,
// aliases that point nowhere, boxes outside their tensor, and sources without bytes.
[[nodiscard]] Result<container::Content> lay_out(const State& state);

// The masters that the state says its tensors have, by stream; those of tensors in the pool are of no use.
// invalid_argument, naming the tensor and its master, for one that is not there or no F32, for a tensor that is neither
// BF16 nor F16, elements that the master does not have, and tensors of the same bytes that do not agree. Precondition:
// content and streams are those of the state.
[[nodiscard]] Result<std::vector<std::optional<PeerStream>>> lay_out_masters(const State& state,
                                                                             const container::Content& content,
                                                                             const container::StreamTable& streams);

// The bytes of the streams of a state. Holds references to all it is given. Thread-safe as the sources are.
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
