// The newest state in memory, as the base of the next: what was stored, byte for byte, in place of decoding it again.
//
// A StateKeeper listens to a recording and gathers the bytes; a KeptState offers them together with the snapshot they
// were written to, which knows where bytes really lie. A KeptState is immutable and thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <bitsnap/snapshot.hpp>

#include "base/bytes.hpp"
#include "record/state_tap.hpp"

namespace bitsnap::store {

// The bytes of one stream.
struct StreamBuffer {
  std::unique_ptr<std::byte[]> bytes;
  std::uint64_t size_bytes = 0;
};

class StateKeeper final : public record::StateTap {
 public:
  // Keeps nothing if the state is larger than this. `spare`: buffers to be used again where their sizes fit, as memory
  // that was touched before is the faster one.
  StateKeeper(std::uint64_t limit_bytes, std::vector<StreamBuffer> spare)
      : limit_bytes_(limit_bytes), spare_(std::move(spare)) {}

  Result<void> begin(std::span<const StreamInfo> streams) override;
  void take(std::size_t stream, std::uint64_t offset_bytes, ConstByteSpan bytes) noexcept override;

  // After the recording: what was gathered; empty if the limit or the memory did not allow it.
  [[nodiscard]] std::vector<StreamBuffer> release() noexcept { return std::move(streams_); }

 private:
  const std::uint64_t limit_bytes_;
  std::vector<StreamBuffer> spare_;
  std::vector<StreamBuffer> streams_;
};

class KeptState final : public Base {
 public:
  // `streams` are those of `snapshot`, decoded.
  KeptState(std::shared_ptr<const Snapshot> snapshot, std::vector<StreamBuffer> streams)
      : snapshot_(std::move(snapshot)), streams_(std::move(streams)) {}

  [[nodiscard]] std::vector<StreamBuffer> release() noexcept { return std::move(streams_); }

  SnapshotId id() const noexcept override { return snapshot_->id(); }
  const std::string& name() const noexcept override { return snapshot_->name(); }
  std::span<const TensorInfo> tensors() const noexcept override { return snapshot_->tensors(); }
  std::span<const StreamInfo> streams() const noexcept override { return snapshot_->streams(); }
  std::optional<std::size_t> find(std::string_view tensor_name) const noexcept override {
    return snapshot_->find(tensor_name);
  }
  std::optional<std::size_t> stream_of(std::size_t tensor) const noexcept override {
    return snapshot_->stream_of(tensor);
  }
  Result<void> read_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out,
                             ReadContext& context) const override;
  Result<ChunkHolder> holder(std::size_t stream, std::uint64_t chunk) const override {
    return snapshot_->holder(stream, chunk);
  }

 private:
  std::shared_ptr<const Snapshot> snapshot_;
  std::vector<StreamBuffer> streams_;
};

}  // namespace bitsnap::store
