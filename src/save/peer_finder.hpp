// Finds the fp32 master of each 16-bit weight of a state by comparing bits: a weight is its master, rounded
// (docs/decisions/0010-weights-beside-masters.md). Weights whose master the caller gives are not searched; see
// lay_out_masters().
//
// Samples of 64 elements decide. Names decide only between masters with equal samples, if weights were rounded
// stochastically, and for tensors that cannot be sampled, such as those on another device. A master may be a slice of a
// flat buffer, as in ZeRO and in Megatron's distributed optimizer. A wrong match costs bytes only, because coding
// compares every element. One thread calls this, before the first chunk is coded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "container/directory.hpp"
#include "save/stream_source.hpp"

namespace bitsnap::save {

// A stream of the same file, and the element in it that corresponds to element 0 of the stream that has this peer.
struct PeerStream {
  std::size_t stream = 0;
  std::uint64_t element = 0;

  friend bool operator==(const PeerStream&, const PeerStream&) = default;
};

// The masters of all weights, by stream: the given ones, and those that were found for the other weights. `given` is by
// stream, or empty if there are none. Tensors that cannot be read are skipped. The number of comparisons is bounded for
// each weight and for each element of a flat buffer.
[[nodiscard]] std::vector<std::optional<PeerStream>> find_peers(const container::Content& content,
                                                                const container::StreamTable& streams,
                                                                const StreamSource& source,
                                                                std::vector<std::optional<PeerStream>> given);

}  // namespace bitsnap::save
