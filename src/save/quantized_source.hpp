// A state as it is to be stored: without what rules let go of it. Everybody who writes the file reads this, so that
// what is hashed, compared and coded is what will be read back, and the base of the next delta.
//
// Any part of a tensor can be read at any time and has the bits that it has in the whole. A first moment is read beside
// its second moment, which is read and quantized for that once more.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include <bitsnap/quantization.hpp>
#include <bitsnap/writer.hpp>

#include "codec/decoder.hpp"
#include "container/directory.hpp"
#include "container/index.hpp"
#include "exec/executor.hpp"
#include "quantize/quantizer.hpp"
#include "quantize/update_step.hpp"
#include "save/peer_finder.hpp"
#include "save/stream_source.hpp"

namespace bitsnap::save {

// Of each stream of first moments the one of second moments, F32, that has the same name but for that, and as many
// elements.
[[nodiscard]] std::vector<std::optional<std::size_t>> pair_moments(const container::Content& content,
                                                                   const container::StreamTable& streams);

class QuantizedSource final : public StreamSource {
 public:
  // All that it is given outlives it.
  QuantizedSource(const StreamSource& source, const container::Content& content, const container::StreamTable& streams)
      : source_(source), content_(content), streams_(streams), losses_(streams.streams.size()) {}

  // By rules and the policy's own. `state` says what it knows of the optimizer, `masters` (lay_out_masters()) which
  // streams are roundings of which. Clusters are fitted: their tensors are read twice for that. invalid_argument,
  // naming the tensor, for an amount out of range, and where the numbers of Adam are needed and not there.
  // Policy and objective of `options` have values.
  [[nodiscard]] Result<void> prepare(const State& state, const SaveOptions& options,
                                     std::span<const std::optional<PeerStream>> masters, exec::Executor& executor);

  // Whether any tensor loses anything.
  [[nodiscard]] bool is_lossy() const noexcept;

  Result<void> read(std::size_t stream, std::uint64_t offset, ByteSpan out, ReadContext& context) const override;
  Result<void> read_to_store(std::size_t stream, std::uint64_t offset, ByteSpan out, ReadContext& context,
                             Lost& lost) const override;
  [[nodiscard]] bool can_be_sampled(std::size_t stream) const noexcept override {
    return source_.can_be_sampled(stream);
  }

  [[nodiscard]] static quantize::UpdateStepParameters parameters_of(const AdamNumbers& adam, double step) noexcept {
    return {.beta1 = adam.beta1,
            .beta2 = adam.beta2,
            .epsilon = adam.epsilon,
            .step_count = adam.step,
            .update_step = step};
  }

  // What is promised of a stream, with nothing reached yet; nullopt where it is kept exact.
  [[nodiscard]] std::optional<LossReport> promise(std::size_t stream) const;
  // What a first moment was made multiples of, and the stream of second moments beside it.
  struct Multiples {
    codec::Lattice lattice;
    std::size_t squares = 0;
  };
  [[nodiscard]] std::optional<Multiples> multiples(std::size_t stream) const noexcept {
    return losses_[stream].multiples;
  }
  // What a tensor was quantized by; empty where that is not clusters.
  [[nodiscard]] std::span<const codec::ClusterExtent> clusters(std::size_t stream) const noexcept {
    return losses_[stream].clusters;
  }

 private:
  // Of one stream; a default one loses nothing.
  struct Loss {
    LossRule rule = {};
    std::unique_ptr<const quantize::Quantizer> quantizer = nullptr;
    std::optional<double> bound = {};
    std::optional<Multiples> multiples = {};
    std::vector<codec::ClusterExtent> clusters = {};
    std::optional<std::size_t> squares = {};  // second moments beside a first moment
    std::optional<AdamNumbers> adam = {};     // of a first moment
    std::optional<double> next_update_bound = {};
    std::optional<double> all_updates_bound = {};
  };

  [[nodiscard]] Result<void> prepare_stream(std::size_t stream, const LossRule& rule, const State& state,
                                            const SaveOptions& options, exec::Executor& executor);
  void find_aliases();
  [[nodiscard]] std::span<const std::size_t> aliases_of(std::size_t tensor) const noexcept;
  // The rule of a tensor and of all its aliases; nullptr where none is said, or they have not the same.
  [[nodiscard]] const LossRule* agreed_rule(std::size_t tensor, std::span<const LossRule> rules,
                                            std::span<const LossRule> preset) const noexcept;
  [[nodiscard]] DType weights_of(std::size_t master);
  void find_weights();
  Result<void> prepare_update_step(std::size_t stream, const LossRule& rule, std::optional<AdamNumbers> adam);
  Result<void> fit(std::size_t stream, const LossRule& rule, exec::Executor& executor);
  [[nodiscard]] double square_error(std::size_t squares) const noexcept;
  [[nodiscard]] std::string describe(std::size_t stream) const;
  Result<void> quantize(std::size_t stream, std::uint64_t offset, ByteSpan out, ReadContext& context,
                        ErrorTally* tally) const;

  const StreamSource& source_;
  const container::Content& content_;
  const container::StreamTable& streams_;
  std::vector<Loss> losses_;
  std::vector<std::optional<PeerStream>> masters_;  // of weights, by stream
  bool weights_are_found_ = false;
  std::unordered_map<std::size_t, std::vector<std::size_t>> aliases_;  // of tensors that have any
  std::vector<std::optional<std::size_t>> squares_;                    // of first moments, by stream
};

}  // namespace bitsnap::save
