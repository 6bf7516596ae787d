// Encodes some chunks of a state, alone or against another state, and keeps only their sizes: a save on trial.
//
// Everything is as in a save, except that inputs are read from the states themselves and that nothing is written. So a
// chunk takes what it takes in a file, but for what similar chunks outside the sample would have changed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/settings.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

#include "container/directory.hpp"
#include "exec/executor.hpp"
#include "save/quantized_source.hpp"
#include "save/state_layout.hpp"

namespace bitsnap::save {

// Reads a state, and counts its bytes that were read at least once. Thread-safe.
class CountedReader final : public StreamSource {
 public:
  // The arguments outlive it.
  CountedReader(const State& state, const container::Content& content, const container::StreamTable& streams)
      : reader_(state, content, streams), streams_(streams), seen_(streams.first_chunk.back()) {}

  Result<void> read(std::size_t stream, std::uint64_t offset, ByteSpan out, ReadContext& context) const override;
  [[nodiscard]] bool can_be_sampled(std::size_t stream) const noexcept override {
    return reader_.can_be_sampled(stream);
  }
  // Parts of chunks that were read several times count several times until the whole chunk is read.
  [[nodiscard]] std::uint64_t read_bytes() const noexcept { return read_bytes_; }

 private:
  StreamReader reader_;
  const container::StreamTable& streams_;
  mutable std::vector<std::atomic<bool>> seen_;  // by chunk number
  mutable std::atomic<std::uint64_t> read_bytes_ = 0;
};

// A state that is encoded on trial, and that others are encoded against. Immutable but for the count; thread-safe.
class TrialState final : public Base {
 public:
  // `name` is for messages. `depth`: of its chunks, as if it were stored. Fails as save_snapshot() does for states and
  // settings that cannot be saved.
  [[nodiscard]] static Result<std::shared_ptr<const TrialState>> make(std::string name,
                                                                      std::shared_ptr<const State> state,
                                                                      const CodingSettings& settings,
                                                                      std::uint32_t depth, exec::Executor& executor);

  [[nodiscard]] SnapshotId id() const noexcept override { return {1, 1}; }  // a file has one base on trial at most
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] std::span<const TensorInfo> tensors() const noexcept override { return content_.tensors; }
  [[nodiscard]] std::span<const StreamInfo> streams() const noexcept override { return streams_.streams; }
  [[nodiscard]] std::optional<std::size_t> find(std::string_view tensor_name) const noexcept override {
    return content_.names.find(content_.tensors, tensor_name);
  }
  [[nodiscard]] std::optional<std::size_t> stream_of(std::size_t tensor) const noexcept override {
    return streams_.stream_of[tensor];
  }
  [[nodiscard]] Result<void> read_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out,
                                           ReadContext& context) const override;
  [[nodiscard]] Result<ChunkHolder> holder(std::size_t stream, std::uint64_t chunk) const override;

  [[nodiscard]] const container::Content& content() const noexcept { return content_; }
  [[nodiscard]] const container::StreamTable& table() const noexcept { return streams_; }
  [[nodiscard]] std::uint64_t read_bytes() const noexcept { return reader_->read_bytes(); }

 private:
  friend class Trial;
  TrialState() = default;

  [[nodiscard]] const StreamSource& source() const noexcept {
    return quantized_->is_lossy() ? static_cast<const StreamSource&>(*quantized_) : *reader_;
  }

  std::string name_;
  std::shared_ptr<const State> state_;
  container::Content content_;
  container::StreamTable streams_;
  std::vector<std::optional<PeerStream>> masters_;
  std::uint32_t depth_ = 0;
  std::optional<CountedReader> reader_;
  std::optional<QuantizedSource> quantized_;
};

struct TrialChunk {
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;
  bool is_same = false;  // as the base's chunk: also a keyframe refers to that
};

struct TrialSizes {
  std::vector<TrialChunk> chunks;  // in the order of the numbers that were asked for
  std::uint64_t table_bytes = 0;   // of a file beside the payloads of all its chunks, about
};

struct TrialOptions {
  CodingSettings settings = {};
  std::shared_ptr<const TrialState> base = nullptr;                     // nullptr: standalone
  bool base_is_later = false;                                           // the base holds a later state of the training
  std::function<Result<void>(std::uint64_t raw_bytes)> done = nullptr;  // called for each chunk
};

// Encodes the chunks with these numbers, which are different ones.
[[nodiscard]] Result<TrialSizes> encode_on_trial(const TrialState& state, std::span<const std::size_t> numbers,
                                                 const TrialOptions& options, exec::Executor& executor);

}  // namespace bitsnap::save
