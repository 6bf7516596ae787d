// Decides how each stream of a state is quantized before it is stored: applies the loss rules of the caller and of the
// policy to all tensors, and makes the quantizers (docs/spec/quantizers.md). quantized_source.hpp applies them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/quantization.hpp>
#include <bitsnap/writer.hpp>

#include "codec/encoder.hpp"
#include "container/directory.hpp"
#include "exec/executor.hpp"
#include "quantize/quantizer.hpp"
#include "save/peer_finder.hpp"
#include "save/stream_source.hpp"

namespace bitsnap::save {

// Of a first moment: what its elements are multiples of, and the stream of its second moments.
struct Multiples {
  codec::Lattice lattice;
  std::size_t second_moments = 0;
};

struct StreamLoss {
  std::unique_ptr<const quantize::Quantizer> quantizer = nullptr;  // nullptr: the stream stays exact
  LossReport report = {};                                          // without the reached errors
  std::optional<std::size_t> second_moments = {};   // of a first moment: the stream of its second moments
  std::optional<Multiples> multiples = {};          // if the quantizer makes multiples
  std::vector<codec::ClusterExtent> clusters = {};  // if the quantizer makes clusters
};

// Returns one loss per stream. Precondition: the policy in `options` has a value. `masters` are the given masters
// (lay_out_masters()). A rule that does not fit a tensor leaves it exact: `quantizer` is nullptr, and the report
// does not count. Reads tensors twice if clusters must be fitted to them. Fails with invalid_argument, naming the
// tensor, if an amount is out of range or if Adam's values are needed and unknown.
[[nodiscard]] Result<std::vector<StreamLoss>> plan_losses(const State& state, const SaveOptions& options,
                                                          const container::Content& content,
                                                          const container::StreamTable& streams,
                                                          const StreamSource& source,
                                                          std::span<const std::optional<PeerStream>> masters,
                                                          exec::Executor& executor);

// For each stream of F32 first moments the stream of F32 second moments with the same name (except for the name of the
// moment) and number of elements. A first moment whose aliases have different second moments has none.
[[nodiscard]] std::vector<std::optional<std::size_t>> second_moments_of(const container::Content& content,
                                                                        const container::StreamTable& streams);

}  // namespace bitsnap::save
