// The implementation of a Snapshot: the open file, its bases, and the decoding of chunks.
//
// Immutable except for caches (bases, checked parameter sets, pool chunks, the order of chunks), which are locked or
// atomic. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/snapshot.hpp>

#include "base/bytes.hpp"
#include "codec/decoder.hpp"
#include "container/file_reader.hpp"
#include "os/file_system.hpp"
#include "restore/chunk_groups.hpp"
#include "restore/decoded_state.hpp"
#include "restore/directory_bases.hpp"
#include "restore/read_context.hpp"

namespace bitsnap::restore {

// The most recently decoded pool chunks: each holds thousands of tiny tensors, which are often read one by one.
// Thread-safe.
class PoolCache {
 public:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;

  // nullptr if it is not cached.
  [[nodiscard]] Bytes find(std::uint64_t chunk) {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) {
      if (entry.bytes && entry.chunk == chunk) return entry.bytes;
    }
    return nullptr;
  }

  // Replaces the oldest entry. No lock is held while a chunk is decoded, because decoding may lead into another
  // snapshot's pool and back; so two threads may decode the same chunk.
  void put(std::uint64_t chunk, Bytes bytes) {
    const std::lock_guard lock(mutex_);
    entries_[next_] = Entry{chunk, std::move(bytes)};
    next_ = (next_ + 1) % entries_.size();
  }

 private:
  // A pool chunk has 256 KiB.
  static constexpr std::size_t kChunks = 8;

  struct Entry {
    std::uint64_t chunk = 0;
    Bytes bytes;
  };

  std::mutex mutex_;
  std::array<Entry, kChunks> entries_;
  std::size_t next_ = 0;
};

}  // namespace bitsnap::restore

namespace bitsnap {

struct Snapshot::Impl {
  Impl(std::unique_ptr<container::FileReader> file_reader, const DecodeLimits& decode_limits);

  [[nodiscard]] static const Impl& of(const Snapshot& snapshot) noexcept { return *snapshot.impl_; }

  [[nodiscard]] const container::Index& index() const noexcept { return reader->index(); }
  [[nodiscard]] const StreamInfo& stream(std::size_t number) const noexcept { return index().streams.streams[number]; }
  [[nodiscard]] const container::ChunkEntry& entry(std::size_t stream, std::uint64_t chunk) const noexcept {
    return index().chunks[static_cast<std::size_t>(index().streams.first_chunk[stream] + chunk)];
  }
  [[nodiscard]] std::size_t chunk_bytes(std::size_t stream, std::uint64_t chunk) const noexcept;
  [[nodiscard]] bool has_chunk(std::size_t stream, std::uint64_t chunk) const noexcept;
  struct ChunkNumber {
    std::size_t stream = 0;
    std::uint64_t chunk = 0;
  };
  // By the chunk's number in the file.
  [[nodiscard]] ChunkNumber chunk_numbered(std::size_t number) const noexcept;
  [[nodiscard]] bool uses_base(std::size_t stream, const container::ChunkEntry& entry) const noexcept;
  // "run/a.bsnap, tensor 'x', chunk 3"
  [[nodiscard]] std::string place(std::size_t stream, std::uint64_t chunk) const;

  // The order to read chunks in.
  [[nodiscard]] const restore::ChunkGroups& groups() const;
  // Which chunks of a batch are cached while it is read.
  [[nodiscard]] ReadContext::Expected expected_again(std::size_t batch) const;

  // Where the bytes of a tensor begin in its stream.
  struct TensorPlace {
    std::size_t stream = 0;
    std::uint64_t offset = 0;  // bytes
  };
  // Precondition: the tensor is not empty. Aliases are followed.
  [[nodiscard]] TensorPlace tensor_place(std::size_t tensor) const noexcept;

  // Base `number` of the table, opened when it is first needed.
  [[nodiscard]] Result<std::shared_ptr<const Base>> base(std::size_t number) const;

  // See WorkBudget.
  [[nodiscard]] std::uint64_t chunk_cost(std::size_t stream, std::uint64_t chunk) const noexcept;

  // Decodes a chunk into `out`, which has its size, and checks its hash. `payload`: its payload, if it has been read
  // and checked already. `is_part`: only a part of the chunk is used.
  [[nodiscard]] Result<void> decode_chunk(std::size_t stream, std::uint64_t chunk, ByteSpan out, ReadContext& context,
                                          std::optional<ConstByteSpan> payload = std::nullopt,
                                          bool is_part = false) const;
  // Bytes [offset, offset + out.size()) of a stream. Precondition: they lie inside it.
  [[nodiscard]] Result<void> read_stream(std::size_t stream, std::uint64_t offset, ByteSpan out,
                                         ReadContext& context) const;
  // With a context of its own; each chunk has the whole budget.
  [[nodiscard]] Result<void> read_stream(std::size_t stream, std::uint64_t offset, ByteSpan out) const;

  // Unique to this opening of the file in this process.
  const std::uint64_t opening;
  std::unique_ptr<container::FileReader> reader;
  DecodeLimits limits;
  std::uint64_t work_allowance = 0;  // see WorkBudget

  void set_decoded(std::shared_ptr<const restore::DecodedState> decoded) const;
  // Whether chunks may be in memory, decoded.
  [[nodiscard]] bool has_decoded() const noexcept { return has_decoded_.load(std::memory_order_relaxed); }
  // See Snapshot::sample_elements().
  [[nodiscard]] bool sample(std::size_t stream, std::uint64_t first, ByteSpan out) const;

  // One of these: the caller's provider or our own, or the provider that owns this snapshot.
  std::shared_ptr<const BaseProvider> provider;
  std::shared_ptr<const restore::DirectoryBases> directory;
  const restore::DirectoryBases* owner = nullptr;

 private:
  struct Source;

  Result<void> decode_unnamed(std::size_t stream, std::uint64_t chunk, ByteSpan out, ReadContext& context,
                              std::optional<ConstByteSpan> payload, bool& failed_in_input) const;
  Result<Source> find_source(std::size_t stream, std::uint64_t chunk, std::uint8_t input) const;
  Result<void> read_source(const Source& source, ByteSpan out, ReadContext& context) const;
  Result<ConstByteSpan> parameters_of(std::size_t stream, const container::ChunkEntry& entry,
                                      const codec::Decoder& decoder) const;
  [[nodiscard]] std::shared_ptr<const restore::DecodedState> decoded() const;
  // Copies a chunk from memory; false if it is absent or its hash differs.
  bool copy_decoded(std::size_t stream, std::uint64_t chunk, ByteSpan out) const;
  Result<void> read_pool(std::uint64_t chunk, std::size_t offset, ByteSpan out, ReadContext& context) const;

  std::vector<bool> is_peer_;  // per stream, whether others of this file depend on it; empty where none does
  mutable std::once_flag groups_once_;
  mutable std::optional<restore::ChunkGroups> groups_;
  mutable std::mutex bases_mutex_;
  mutable std::vector<std::shared_ptr<const Base>> bases_;  // as they were found; empty where `owner` keeps them
  // By parameter set: 1 + the codec that last accepted it.
  mutable std::vector<std::atomic<std::uint32_t>> accepted_parameters_;
  mutable restore::PoolCache pool_cache_;
  mutable std::atomic<bool> has_decoded_ = false;  // without it, a read needs no lock
  mutable std::mutex decoded_mutex_;
  mutable std::shared_ptr<const restore::DecodedState> decoded_;
};

namespace restore {

// Makes a snapshot that `owner` owns and provides bases for.
[[nodiscard]] Result<std::shared_ptr<const Snapshot>> open_for(std::unique_ptr<os::RandomAccessFile> file,
                                                               const DecodeLimits& limits, const DirectoryBases& owner);

}  // namespace restore

}  // namespace bitsnap
