// States for tests of writing, the files that they become, and bases in memory. An unexpected failure throws, because
// it is a mistake in the test.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

#include "container/raw_file_testing.hpp"
#include "save/snapshot_rewriter.hpp"
#include "save/snapshot_writer.hpp"
#include "save/state_tap.hpp"

namespace bitsnap::save {

using container::Bytes;

// A tensor whose bytes outlive it, with the role that its name suggests.
[[nodiscard]] TensorSource source(std::string name, DType dtype, std::vector<std::uint64_t> shape, const Bytes& bytes);

// Bytes that depend on the arguments only.
[[nodiscard]] Bytes bf16_weights(std::size_t elements, unsigned seed);
[[nodiscard]] Bytes f32_masters(std::size_t elements, unsigned seed);
[[nodiscard]] Bytes random_bytes(std::size_t size, unsigned seed);
// F32 masters rounded to the nearest BF16, ties to even.
[[nodiscard]] Bytes rounded(ConstByteSpan masters);

// The whole tensor. If it cannot be read, the test fails and the result is empty.
[[nodiscard]] Bytes read_tensor(const Snapshot& snapshot, std::string_view name);
// The chunks of a tensor, the codecs among them, and their stored bytes together.
[[nodiscard]] std::vector<ChunkInfo> chunks_of(const Snapshot& snapshot, std::string_view name);
[[nodiscard]] std::set<std::string> codecs_of(const Snapshot& snapshot, std::string_view name);
[[nodiscard]] std::uint64_t stored_bytes(const Snapshot& snapshot, std::string_view name);

// A file in memory, and what it depends on.
struct WrittenFile {
  WriteSummary summary;
  Bytes file;
};

// Uses two threads unless the options say otherwise. `bases` and `tap` may be nullptr.
[[nodiscard]] Result<WrittenFile> write_state(const State& state, const SaveOptions& options,
                                              BaseFinder* bases = nullptr, StateTap* tap = nullptr);
// The same for rewrite_snapshot().
[[nodiscard]] Result<WrittenFile> rewrite_by(const RewriteRules& rules, const Snapshot& source,
                                             const SaveOptions& options, BaseFinder* bases);
[[nodiscard]] Result<WrittenFile> rewrite(const Snapshot& source, const std::vector<SnapshotId>& dropped,
                                          const SaveOptions& options = {}, BaseFinder* bases = nullptr);

// Expects equal files with 1, 2 and 5 threads. `base` may be nullptr.
void expect_same_bytes_for_any_threads(const State& state, SaveOptions options = {},
                                       const std::shared_ptr<const Base>& base = nullptr);

[[nodiscard]] std::vector<SnapshotId> ids_of(std::span<const BaseReference> bases);

// Adds `by` to every `stride`-th byte. Because it adds, repeated changes do not restore an earlier state.
void change(Bytes& bytes, std::size_t stride, unsigned by);

// The log (may be nullptr) will contain every read of the file from now on.
[[nodiscard]] std::shared_ptr<const Snapshot> open_file(const std::string& name, Bytes file,
                                                        std::shared_ptr<const BaseProvider> bases = nullptr,
                                                        const std::shared_ptr<container::ReadLog>& log = nullptr);

// A chain of saves, each against the one before, in files that stay open: "0.bsnap", "1.bsnap", ...
class Chain {
 public:
  const Snapshot& save(const State& state, const SaveOptions& options = {});
  [[nodiscard]] const std::shared_ptr<const Snapshot>& at(std::size_t number) const { return snapshots_.at(number); }
  [[nodiscard]] const std::shared_ptr<const Snapshot>& last() const { return snapshots_.back(); }
  [[nodiscard]] const WriteSummary& last_summary() const { return summary_; }
  [[nodiscard]] const Bytes& file(std::size_t number) const { return files_.at(number); }
  // A provider of these snapshots, for files that depend on them.
  [[nodiscard]] std::shared_ptr<const BaseProvider> bases(const std::vector<std::size_t>& numbers) const;

 private:
  std::vector<std::shared_ptr<const Snapshot>> snapshots_;
  std::vector<Bytes> files_;
  WriteSummary summary_;
};

// A base that behaves like an open file, except for what a test overrides.
class DelegatingBase : public Base {
 public:
  explicit DelegatingBase(std::shared_ptr<const Snapshot> file) : file_(std::move(file)) {}

  [[nodiscard]] const std::shared_ptr<const Snapshot>& file() const noexcept { return file_; }
  void attach(std::shared_ptr<const Snapshot> file) { file_ = std::move(file); }

  [[nodiscard]] SnapshotId id() const noexcept override { return file_->id(); }
  [[nodiscard]] const std::string& name() const noexcept override { return file_->name(); }
  [[nodiscard]] std::span<const TensorInfo> tensors() const noexcept override { return file_->tensors(); }
  [[nodiscard]] std::span<const StreamInfo> streams() const noexcept override { return file_->streams(); }
  [[nodiscard]] std::optional<std::size_t> find(std::string_view tensor_name) const noexcept override {
    return file_->find(tensor_name);
  }
  [[nodiscard]] std::optional<std::size_t> stream_of(std::size_t tensor) const noexcept override {
    return file_->stream_of(tensor);
  }
  [[nodiscard]] Result<void> read_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out,
                                           ReadContext& context) const override {
    return file_->read_elements(stream, first, out, context);
  }
  [[nodiscard]] Result<ChunkHolder> holder(std::size_t stream, std::uint64_t chunk) const override {
    return file_->holder(stream, chunk);
  }

 private:
  std::shared_ptr<const Snapshot> file_;
};

// Keeps the bytes of a save in memory, as a tap, and then serves as a base. Before that, attach() the written file,
// which knows the holders of its chunks.
class MemoryBase final : public DelegatingBase, public StateTap {
 public:
  MemoryBase() : DelegatingBase(nullptr) {}

  // The number of calls of read_elements() so far.
  [[nodiscard]] std::uint64_t reads() const noexcept { return reads_; }
  [[nodiscard]] const Bytes& stream_bytes(std::size_t stream) const { return bytes_.at(stream); }
  [[nodiscard]] std::uint64_t chunks_taken() const noexcept { return chunks_taken_; }

  Result<void> begin(std::span<const StreamInfo> streams) override;
  void take(std::size_t stream, std::uint64_t offset_bytes, ConstByteSpan bytes) noexcept override;
  Result<void> read_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out,
                             ReadContext& context) const override;

 private:
  std::vector<Bytes> bytes_;  // per stream
  std::atomic<std::uint64_t> chunks_taken_ = 0;
  mutable std::atomic<std::uint64_t> reads_ = 0;
};

}  // namespace bitsnap::save
