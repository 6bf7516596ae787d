// Which tensors of the same state tell what a step of the optimizer made of a tensor: of a second moment the first
// moment, of a parameter both moments.
//
// Names say who belongs together, and the order of moments of the same size. Of a parameter whose name is a number, or
// leads to no moment, a sample says it: moments of which the codec finds the step that made it. Coding holds every
// element against it, so that a wrong pair costs bytes and never the state. Used by one thread, before the first chunk
// is coded.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "container/directory.hpp"
#include "save/base_finder.hpp"
#include "save/stream_source.hpp"

namespace bitsnap::save {

// Streams of the state itself that hold as many F32 elements as the stream they belong to, element beside element.
struct StepPeers {
  std::size_t moment = 0;             // the first moment
  std::optional<std::size_t> square;  // the second moment, of parameters (of AMSGrad the largest there was); none where
                                      // the stream is the second moment, or the optimizer has none
  bool is_square = false;             // whether the stream is the second moment
};

// For each stream with a base what tells its step. Streams that tell it have a base, too, if they are first moments of
// second ones. What cannot be read now is told by names alone.
[[nodiscard]] std::vector<std::optional<StepPeers>> find_steps(const container::Content& content,
                                                               const container::StreamTable& streams,
                                                               const StreamSource& source,
                                                               std::span<const std::optional<BaseStream>> bases);

}  // namespace bitsnap::save
