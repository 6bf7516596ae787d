// Which tensor of the same state a tensor can be found again from: of a weight of 16 bits, the fp32 master of which it
// is the rounding.
//
// For tensors of which the caller says nothing (lay_out_masters() has the others). What counts is the bits: a few
// samples of each tensor say who may belong together, and coding holds every element against it. Names decide between
// tensors whose samples are the same, where rounding was done at random, and where sampling costs too much, as of
// tensors on another device. A master may be a slice of a flat buffer, as ZeRO and Megatron's distributed optimizer
// keep them. Used by one thread, before the first chunk is coded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "container/directory.hpp"
#include "save/stream_source.hpp"

namespace bitsnap::save {

// The elements of another stream of the same file that stand beside those of a stream.
struct PeerStream {
  std::size_t stream = 0;
  std::uint64_t element = 0;  // beside element 0

  friend bool operator==(const PeerStream&, const PeerStream&) = default;
};

// For each stream that is wanted its peer, which has none itself. What cannot be read now is nobody's peer. A bounded
// number of comparisons is made for each weight, and for each element of a flat buffer.
[[nodiscard]] std::vector<std::optional<PeerStream>> find_peers(const container::Content& content,
                                                                const container::StreamTable& streams,
                                                                const StreamSource& source,
                                                                const std::vector<bool>& wanted);

}  // namespace bitsnap::save
