// A StreamSource that quantizes what it reads (docs/decisions/0013-loss-in-the-source.md). All code of a save reads
// this source, so that the quantized bytes are hashed, compared, coded, and the base of the next snapshot.
//
// Any part of a tensor can be read at any time and gets the same bits as in the whole. A first moment is read together
// with its second moment, which is read and quantized again for that. Immutable and thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "container/directory.hpp"
#include "save/stream_losses.hpp"
#include "save/stream_source.hpp"

namespace bitsnap::save {

class QuantizedSource final : public StreamSource {
 public:
  // `source` and `streams` outlive it. `losses` is by stream.
  QuantizedSource(const StreamSource& source, const container::StreamTable& streams, std::vector<StreamLoss> losses)
      : source_(source), streams_(streams), losses_(std::move(losses)) {}

  // Whether any stream is quantized.
  [[nodiscard]] bool is_lossy() const noexcept {
    return std::ranges::any_of(losses_, [](const StreamLoss& loss) { return loss.quantizer != nullptr; });
  }

  Result<void> read(std::size_t stream, std::uint64_t offset, ByteSpan out, ReadContext& context) const override;
  Result<void> read_to_store(std::size_t stream, std::uint64_t offset, ByteSpan out, ReadContext& context,
                             Lost& lost) const override;
  [[nodiscard]] bool can_be_sampled(std::size_t stream) const noexcept override {
    return source_.can_be_sampled(stream);
  }

  // The loss report of a stream without the reached errors; nullopt if the stream is exact.
  [[nodiscard]] std::optional<LossReport> report(std::size_t stream) const {
    return losses_[stream].quantizer != nullptr ? std::optional(losses_[stream].report) : std::nullopt;
  }
  [[nodiscard]] std::optional<Multiples> multiples(std::size_t stream) const noexcept {
    return losses_[stream].multiples;
  }
  [[nodiscard]] std::span<const codec::ClusterExtent> clusters(std::size_t stream) const noexcept {
    return losses_[stream].clusters;
  }

 private:
  // `tally` may be nullptr.
  Result<void> quantize(std::size_t stream, std::uint64_t offset, ByteSpan out, ReadContext& context,
                        ErrorTally* tally) const;

  const StreamSource& source_;
  const container::StreamTable& streams_;
  std::vector<StreamLoss> losses_;
};

}  // namespace bitsnap::save
