// Reads snapshots. A Snapshot is one open .bsnap file. A Base is a state that chunks of another snapshot are coded
// against.
//
// Every byte is checked against its hash before it is returned. A Snapshot is immutable; any number of threads may use
// one at the same time.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/dtype.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/quantization.hpp>
#include <bitsnap/tensor.hpp>
#include <bitsnap/value.hpp>

namespace bitsnap {

// Working memory and budget of one read. Only the library makes one, and passes it from one base to the next; callers
// use the functions of Snapshot without this parameter.
class ReadContext;

// XXH3-128 of the content of a snapshot. The same content has the same id however it is coded.
struct SnapshotId {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  [[nodiscard]] std::string to_hex() const;  // 32 hexadecimal digits, `high` first
  // nullopt for any text that to_hex() does not return.
  [[nodiscard]] static std::optional<SnapshotId> from_hex(std::string_view text);
  friend auto operator<=>(const SnapshotId&, const SnapshotId&) = default;
};

// One stream of a state: the bytes of one tensor, or of the pool, which holds all tensors smaller than 4 KiB.
struct StreamInfo {
  DType dtype = DType::opaque;
  std::uint64_t elements = 0;
  std::optional<std::size_t> tensor;  // index in tensors(); nullopt: the pool

  [[nodiscard]] std::uint64_t chunk_count() const noexcept { return (elements + kChunkElements - 1) / kChunkElements; }
};

struct ChunkHolder;

// A state that chunks can be coded and decoded against: an open file, or a state in memory. Immutable and thread-safe.
class Base {
 public:
  virtual ~Base() = default;

  [[nodiscard]] virtual SnapshotId id() const noexcept = 0;
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;  // for messages
  [[nodiscard]] virtual std::span<const TensorInfo> tensors() const noexcept = 0;
  [[nodiscard]] virtual std::span<const StreamInfo> streams() const noexcept = 0;
  [[nodiscard]] virtual std::optional<std::size_t> find(std::string_view tensor_name) const noexcept = 0;
  // The stream of a tensor; nullopt if the tensor is empty or in the pool.
  [[nodiscard]] virtual std::optional<std::size_t> stream_of(std::size_t tensor) const noexcept = 0;

  // Decodes elements [first, first + out.size() / element_size(dtype)) of a stream.
  [[nodiscard]] virtual Result<void> read_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out,
                                                   ReadContext& context) const = 0;
  // Copies elements that are in memory, without checking them: for samples, from which a save only guesses how best to
  // encode. Returns false if they are not in memory.
  [[nodiscard]] virtual bool sample_elements(std::size_t stream, std::uint64_t first,
                                             std::span<std::byte> out) const noexcept {
    static_cast<void>(stream), static_cast<void>(first), static_cast<void>(out);
    return false;
  }
  // Follows references to unchanged data until it finds the chunk that stores the bytes.
  [[nodiscard]] virtual Result<ChunkHolder> holder(std::size_t stream, std::uint64_t chunk) const = 0;
};

// The snapshot, stream and element that hold the bytes of a chunk. A reference to unchanged data points here.
struct ChunkHolder {
  std::shared_ptr<const Base> base;  // nullptr: the state whose holder() was called
  std::size_t stream = 0;
  std::uint64_t first_element = 0;  // in `stream`: the position of the chunk's first element
  std::uint32_t depth = 0;          // of the chunk that holds the bytes
  std::uint32_t own_depth = 0;      // of the requested chunk; equals `depth` unless that chunk is a reference
  std::optional<std::uint64_t> decoded_hash = std::nullopt;  // XXH3-64 of the bytes; nullopt: unknown
};

// Finds bases by id. Thread-safe.
class BaseProvider {
 public:
  virtual ~BaseProvider() = default;

  // not_found, with a message that names the id, if the provider has no such base.
  [[nodiscard]] virtual Result<std::shared_ptr<const Base>> find(const SnapshotId& id) const = 0;
};

// Finds `base`, and everything that it depends on; nullptr: nothing.
[[nodiscard]] std::shared_ptr<const BaseProvider> bases_of(std::shared_ptr<const Base> base);

// Called between chunks with the bytes of tensors that are done and the total. Return false to cancel: the call then
// fails with `cancelled`.
using Progress = std::function<bool(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

struct OpenOptions {
  DecodeLimits limits = {};
  // Finds the bases. The snapshot owns a share of the provider and of the bases that it found. To avoid a cycle, a
  // provider that owns snapshots must not be the provider of these snapshots.
  // nullptr: the library searches `base_paths`, then the files "*.bsnap" in the directory of the snapshot. It does so
  // when a base is first needed; use absolute paths if the working directory may change.
  std::shared_ptr<const BaseProvider> bases = nullptr;
  std::vector<std::string> base_paths = {};  // files or directories
};

struct RunOptions {
  unsigned threads = 0;  // 0: as many as this process may use
  Progress progress = nullptr;
};

// Facts about one chunk that the index states, without decoding the chunk.
struct ChunkInfo {
  std::uint16_t codec_id = 0;
  std::string_view codec;    // "unknown" if this version does not know the id
  std::uint64_t offset = 0;  // of the payload in the file, bytes
  std::uint32_t stored_bytes = 0;
  std::uint32_t raw_bytes = 0;
  std::uint32_t depth = 0;         // links that decoding the chunk follows
  std::uint64_t stored_hash = 0;   // XXH3-64 of the payload
  std::uint64_t decoded_hash = 0;  // XXH3-64 of the decoded bytes
  bool uses_base = false;
};

struct BaseReference {
  SnapshotId id;
  std::string name;  // of the base's file at the time when this snapshot was written
};

// One error that a verification found.
struct Damage {
  std::string where;  // "tensor 'x', chunk 3"
  Error error;
};

// A tensor that cannot be read.
struct DamagedTensor {
  std::size_t tensor = 0;  // in Snapshot::tensors()
  Error error;             // the first in it
};

class Snapshot final : public Base {
 public:
  // Reads and checks header, footer and index. Reads no payload and opens no base. not_found or io if the file cannot
  // be read, unsupported for a newer format, truncated or corrupt for a damaged file, and resource_exhausted or corrupt
  // for a file that exceeds the limits.
  [[nodiscard]] static Result<std::shared_ptr<const Snapshot>> open(const std::string& path,
                                                                    const OpenOptions& options = {});
  // The same, of the bytes of a file in memory, which `owner` keeps. Bases are only those of `options.bases`. `name`,
  // for messages.
  [[nodiscard]] static Result<std::shared_ptr<const Snapshot>> open_bytes(std::span<const std::byte> bytes,
                                                                          std::shared_ptr<const void> owner,
                                                                          const OpenOptions& options = {},
                                                                          std::string name = "a snapshot in memory");
  ~Snapshot() override;

  [[nodiscard]] SnapshotId id() const noexcept override;
  [[nodiscard]] const std::string& name() const noexcept override;  // the path given to open()
  [[nodiscard]] std::span<const TensorInfo> tensors() const noexcept override;
  [[nodiscard]] std::span<const StreamInfo> streams() const noexcept override;
  [[nodiscard]] std::optional<std::size_t> find(std::string_view tensor_name) const noexcept override;
  [[nodiscard]] std::optional<std::size_t> stream_of(std::size_t tensor) const noexcept override;
  [[nodiscard]] Result<void> read_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out,
                                           ReadContext& context) const override;
  [[nodiscard]] bool sample_elements(std::size_t stream, std::uint64_t first,
                                     std::span<std::byte> out) const noexcept override;
  [[nodiscard]] Result<ChunkHolder> holder(std::size_t stream, std::uint64_t chunk) const override;

  [[nodiscard]] std::uint64_t file_bytes() const noexcept;
  [[nodiscard]] std::span<const BaseReference> bases() const noexcept;
  [[nodiscard]] bool has_tree() const noexcept;
  // The tree of values, read from the index by each call; nullopt: the file has none. corrupt or resource_exhausted for
  // what docs/spec/typed_tree.md or the limits forbid: opening does not look into it.
  [[nodiscard]] Result<std::optional<Value>> tree() const;
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& metadata() const noexcept;
  // The header of the safetensors file that the snapshot was made from, verbatim; nullopt: made from something else.
  [[nodiscard]] const std::optional<std::string>& safetensors_header() const noexcept;
  [[nodiscard]] const std::string& writer() const noexcept;  // name and version of the program that wrote the file
  [[nodiscard]] const std::string& policy() const noexcept;
  [[nodiscard]] const std::string& objective() const noexcept;  // empty if the writer had no objectives

  [[nodiscard]] Result<ChunkInfo> chunk_info(std::size_t stream, std::uint64_t chunk) const;
  // Why the codecs of a stream were chosen, in one line; empty for a stream that does not exist.
  [[nodiscard]] const std::string& reason(std::size_t stream) const noexcept;
  // What a stream lost before it was stored; nullopt if no loss was requested.
  [[nodiscard]] const std::optional<LossReport>& quantizer(std::size_t stream) const noexcept;

  // Elements [first, first + out.size() / element_size(dtype)) of a stream, decoded on the calling thread.
  // invalid_argument if the stream has no such elements.
  [[nodiscard]] Result<void> read_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out) const;

  // Bytes [offset, offset + out.size()) of a tensor, decoded on the calling thread. Decodes only the chunks in this
  // range and the chunks that these depend on. invalid_argument if the tensor has no such bytes.
  [[nodiscard]] Result<void> read_bytes(std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) const;

  // Reads whole tensors into the caller's memory, in parallel over their chunks. Each `out` has exactly the size of its
  // tensor; otherwise the call fails with invalid_argument. After an error, the content of every `out` is unspecified.
  struct ReadRequest {
    std::size_t tensor = 0;
    std::span<std::byte> out;
  };
  [[nodiscard]] Result<void> read(std::span<const ReadRequest> requests, const RunOptions& options = {}) const;

  // Reads boxes of tensors into memory of any strides, in parallel over the chunks that they touch; each of these is
  // decoded once, whatever the number of boxes in it. Memory beside the caller's is proportional to the number of
  // threads. After an error, the content of every `out` is unspecified. invalid_argument for a box that does not lie in
  // its tensor, unsupported if the elements of a tensor are no whole bytes.
  struct BoxRequest {
    std::size_t tensor = 0;
    std::vector<std::uint64_t> offset;  // elements in each dimension
    std::vector<std::uint64_t> extent;  // elements in each dimension
    std::byte* out = nullptr;           // of the first element of the box
    std::vector<std::int64_t> strides;  // bytes between neighbours in each dimension, of any sign
  };
  [[nodiscard]] Result<void> read_boxes(std::span<const BoxRequest> requests, const RunOptions& options = {}) const;

  // Passes the bytes of all tensors to `sink`, piece by piece, in the order of tensors(); the bytes of an alias are
  // passed again. Chunks are decoded in parallel, in memory that is proportional to the number of threads.
  using Sink = std::function<Result<void>(std::span<const std::byte> piece)>;
  [[nodiscard]] Result<void> stream_all(const Sink& sink, const RunOptions& options = {}) const;
  // The same for some tensors, by number.
  [[nodiscard]] Result<void> stream_tensors(std::span<const std::size_t> numbers, const Sink& sink,
                                            const RunOptions& options = {}) const;

  // Checks every payload against its hash, and the tree of values. With `decode`, also decodes every chunk, together
  // with the bases that it depends on, and checks its hash. Damage is part of the result; the call fails only if it
  // cannot continue, as when it is cancelled.
  [[nodiscard]] Result<std::vector<Damage>> verify(bool decode = true, const RunOptions& options = {}) const;

  // Decodes every chunk, and returns the tensors that cannot be read, by number. All others can. Fails as verify()
  // does.
  [[nodiscard]] Result<std::vector<DamagedTensor>> damaged_tensors(const RunOptions& options = {}) const;

  // Call this before you replace a file: invalid_argument if the file at `path` is this snapshot or one that it depends
  // on, directly or not. Opens all of these files, and fails if one is not found.
  [[nodiscard]] Result<void> check_not_needed(const std::string& path) const;

  struct Impl;
  explicit Snapshot(std::unique_ptr<Impl> impl) noexcept;

 private:
  std::unique_ptr<Impl> impl_;
};

// Reads the id from the footer of a file, and nothing else. For finding a base among many files.
[[nodiscard]] Result<SnapshotId> snapshot_id(const std::string& path);

// How two tensors of the same name differ.
struct TensorDifference {
  enum class Kind : std::uint8_t { equal, changed, only_in_a, only_in_b, incomparable /* dtype or shape differ */ };

  std::string name;
  Kind kind = Kind::equal;
  std::uint64_t elements = 0;
  std::uint64_t changed = 0;      // elements whose bits differ
  std::uint64_t largest_ulp = 0;  // largest ULP distance; of integers, the largest difference
};

// Compares the tensors of two snapshots by name and bits, in parallel.
[[nodiscard]] Result<std::vector<TensorDifference>> compare(const Snapshot& a, const Snapshot& b,
                                                            const RunOptions& options = {});

}  // namespace bitsnap
