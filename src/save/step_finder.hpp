// Finds the moments from which one step of the optimizer can be computed again
// (docs/decisions/0012-optimizer-steps.md): a second moment follows from its first moment, a parameter from both, and
// an average of weights from the weights.
//
// Names match moments with each other and with parameters; moments without a common name are matched by their order.
// If the name of a parameter is a number or leads to no moment, bitsnap searches for moments from which the codec
// computes a sample of the parameter. A wrong match costs bytes only, because coding compares every element. One thread
// calls this, before the first chunk is coded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "container/directory.hpp"
#include "save/base_finder.hpp"
#include "save/stream_source.hpp"

namespace bitsnap::save {

// What a stream is that follows from others, in an order in which none depends on a later one.
enum class Stepped : std::uint8_t { second_moment, parameter, average };

// From what a stream follows: streams of the same file with the same dtype, F32 or BF16, and as many elements, in the
// same order.
struct StepPeers {
  Stepped stepped = Stepped::parameter;
  std::size_t moment = 0;             // the first moment; of an average of weights: the weights
  std::optional<std::size_t> square;  // of a parameter: the second moment, in AMSGrad the largest one so far; nullopt
                                      // if the optimizer has none
};

// The moments of each stream that has a base; nullopt if none were found. The first moment of a second moment has a
// base, too. If a tensor cannot be sampled, only names decide. `bases_are_later`: the bases hold the state after the
// step, and `source` the state before it; then the moments of a parameter have bases.
[[nodiscard]] std::vector<std::optional<StepPeers>> find_steps(const container::Content& content,
                                                               const container::StreamTable& streams,
                                                               const StreamSource& source,
                                                               std::span<const std::optional<BaseStream>> bases,
                                                               bool bases_are_later = false);

}  // namespace bitsnap::save
