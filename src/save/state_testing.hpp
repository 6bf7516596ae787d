// States for tests of writing, the files they become, and a base that is kept in memory.
//
// What goes wrong where nothing should throws: that is a mistake in the test.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

#include "container/raw_file_testing.hpp"
#include "save/snapshot_writer.hpp"
#include "save/state_tap.hpp"

namespace bitsnap::save {

using container::Bytes;

// A tensor over bytes that outlive it, with the role that its name suggests.
[[nodiscard]] TensorSource source(std::string name, DType dtype, std::vector<std::uint64_t> shape, const Bytes& bytes);

// Bytes that follow from the seed alone.
[[nodiscard]] Bytes bf16_weights(std::size_t elements, unsigned seed);
[[nodiscard]] Bytes random_bytes(std::size_t size, unsigned seed);

// The whole tensor; empty, and the test fails, where it cannot be read.
[[nodiscard]] Bytes read_tensor(const Snapshot& snapshot, std::string_view name);

// A file in memory, and what it depends on.
struct WrittenFile {
  WriteSummary summary;
  Bytes file;
};

// Records with two threads where the options say none; nullptr for what is not needed.
[[nodiscard]] Result<WrittenFile> write_state(const State& state, const SaveOptions& options,
                                              BaseFinder* bases = nullptr, StateTap* tap = nullptr);

// Adds to every so many-th byte: a few changes of the same sign do not lead back to an earlier state.
void change(Bytes& bytes, std::size_t stride, unsigned by);

// The log, if there is one, tells of all that is read of the file from now on.
[[nodiscard]] std::shared_ptr<const Snapshot> open_file(const std::string& name, Bytes file,
                                                        std::shared_ptr<const BaseProvider> bases = nullptr,
                                                        std::shared_ptr<container::ReadLog> log = nullptr);

// States saved one after another, each against the one before, in files that stay open: "0.bsnap", "1.bsnap", ...
class Chain {
 public:
  const Snapshot& save(const State& state, const SaveOptions& options = {});
  [[nodiscard]] const std::shared_ptr<const Snapshot>& at(std::size_t number) const { return snapshots_.at(number); }
  [[nodiscard]] const std::shared_ptr<const Snapshot>& last() const { return snapshots_.back(); }
  [[nodiscard]] const WriteSummary& last_summary() const { return summary_; }
  [[nodiscard]] const Bytes& file(std::size_t number) const { return files_.at(number); }
  // These snapshots, for others that depend on them.
  [[nodiscard]] std::shared_ptr<const BaseProvider> bases(const std::vector<std::size_t>& numbers) const;

 private:
  std::vector<std::shared_ptr<const Snapshot>> snapshots_;
  std::vector<Bytes> files_;
  WriteSummary summary_;
};

// A base that answers as an open file does. For overriding what a test is about.
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

// The bytes of a state as a tap saw them, to save the next one against. attach() the file of that save before this
// serves as a base: who holds the chunks, the file knows.
class MemoryBase final : public DelegatingBase, public StateTap {
 public:
  MemoryBase() : DelegatingBase(nullptr) {}

  // Pieces that were read so far.
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
