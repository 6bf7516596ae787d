// WatchedBase: a base that remembers whether reading it failed. A save can do without a damaged base, so it must tell
// this failure from all others. As thread-safe as the base that it wraps.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include <bitsnap/snapshot.hpp>

namespace bitsnap::store {

// Shared by all bases of one save.
struct BaseWatch {
  std::atomic<bool> failed = false;
};

class WatchedBase final : public Base {
 public:
  WatchedBase(std::shared_ptr<const Base> base, std::shared_ptr<BaseWatch> watch)
      : base_(std::move(base)), watch_(std::move(watch)) {}

  SnapshotId id() const noexcept override { return base_->id(); }
  const std::string& name() const noexcept override { return base_->name(); }
  std::span<const TensorInfo> tensors() const noexcept override { return base_->tensors(); }
  std::span<const StreamInfo> streams() const noexcept override { return base_->streams(); }
  std::optional<std::size_t> find(std::string_view tensor_name) const noexcept override {
    return base_->find(tensor_name);
  }
  std::optional<std::size_t> stream_of(std::size_t tensor) const noexcept override { return base_->stream_of(tensor); }
  Result<void> read_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out,
                             ReadContext& context) const override {
    return watch(base_->read_elements(stream, first, out, context));
  }
  bool sample_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out) const noexcept override {
    return base_->sample_elements(stream, first, out);
  }
  Result<ChunkHolder> holder(std::size_t stream, std::uint64_t chunk) const override {
    return watch(base_->holder(stream, chunk));
  }

 private:
  template <typename T>
  Result<T> watch(Result<T> result) const {
    if (!result) watch_->failed.store(true, std::memory_order_relaxed);
    return result;
  }

  const std::shared_ptr<const Base> base_;
  const std::shared_ptr<BaseWatch> watch_;
};

}  // namespace bitsnap::store
