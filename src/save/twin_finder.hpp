// Finds streams of a state that hold the same bytes as an earlier one, whatever their names: a folder may have a tensor
// in several files, and an optimizer a copy of a weight.
//
// Samples of 64 elements decide. A wrong match costs the time of a comparison only, because coding compares each chunk
// with its twin's. The search takes 8 bytes for each stream with as many elements of the same dtype as another one. One
// thread calls this, before the first chunk is coded.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "container/directory.hpp"
#include "save/stream_source.hpp"

namespace bitsnap::save {

// By stream: the first stream with the same dtype, number of elements and sample, if it comes earlier. Streams that
// cannot be sampled and those that repeat one element have none.
[[nodiscard]] std::vector<std::optional<std::size_t>> find_twins(const container::StreamTable& streams,
                                                                 const StreamSource& source);

}  // namespace bitsnap::save
