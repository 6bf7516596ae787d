// Reading: a Snapshot is one open .bsnap file; a Base is what chunks of another snapshot are decoded against.
//
// Everything read is held against its hash before it is given out. A Snapshot is immutable and may be used by any
// number of threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/quantization.hpp>
#include <bitsnap/tensor.hpp>
#include <bitsnap/value.hpp>

namespace bitsnap {

class ReadContext;  // working memory and budget of one read; src/restore/read_context.hpp

// XXH3-128 over what a snapshot holds, not over how it is coded.
struct SnapshotId {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  [[nodiscard]] std::string to_hex() const;  // 32 digits, high first
  [[nodiscard]] static std::optional<SnapshotId> from_hex(std::string_view text);
  friend auto operator<=>(const SnapshotId&, const SnapshotId&) = default;
};

// One stream of a state: the chunks of one tensor, or of the pool that small tensors share.
struct StreamInfo {
  DType dtype = DType::opaque;
  std::uint64_t elements = 0;
  std::optional<std::size_t> tensor;  // nullopt: the pool

  [[nodiscard]] std::uint64_t chunk_count() const noexcept { return (elements + kChunkElements - 1) / kChunkElements; }
};

// The chunk that holds the bytes of another one: where a reference to unchanged data has to point.
struct ChunkHolder;

// A state that chunks can be coded and decoded against: an open file, or one that is kept in memory.
class Base {
 public:
  virtual ~Base() = default;

  [[nodiscard]] virtual SnapshotId id() const noexcept = 0;
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;  // for messages
  [[nodiscard]] virtual std::span<const TensorInfo> tensors() const noexcept = 0;
  [[nodiscard]] virtual std::span<const StreamInfo> streams() const noexcept = 0;
  [[nodiscard]] virtual std::optional<std::size_t> find(std::string_view tensor_name) const noexcept = 0;
  // The stream of a tensor; nullopt where it is empty or lies in the pool.
  [[nodiscard]] virtual std::optional<std::size_t> stream_of(std::size_t tensor) const noexcept = 0;

  // Decodes elements [first, first + out.size() / element size) of a stream.
  [[nodiscard]] virtual Result<void> read_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out,
                                                   ReadContext& context) const = 0;
  // Where the bytes of this chunk really are, following references to unchanged data.
  [[nodiscard]] virtual Result<ChunkHolder> holder(std::size_t stream, std::uint64_t chunk) const = 0;
};

struct ChunkHolder {
  std::shared_ptr<const Base> base;  // nullptr: the state that was asked
  std::size_t stream = 0;
  std::uint64_t first_element = 0;  // of that stream, at the chunk's first element
  std::uint32_t depth = 0;          // of the chunk that holds the bytes
  std::uint32_t own_depth = 0;      // of the chunk that was asked for; the same unless it refers to another
  std::optional<std::uint64_t> decoded_hash = std::nullopt;  // XXH3-64 of the bytes, where it is known
};

// Finds bases by id. Thread-safe.
class BaseProvider {
 public:
  virtual ~BaseProvider() = default;

  // not_found, naming the id, where there is none.
  [[nodiscard]] virtual Result<std::shared_ptr<const Base>> find(const SnapshotId& id) const = 0;
};

// Asked between chunks with what is done and what there is to do, in bytes of tensors; false cancels.
using Progress = std::function<bool(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

struct OpenOptions {
  DecodeLimits limits = {};
  // Where bases are looked for. Without one: among `base_paths`, then beside the file, in files that end in ".bsnap";
  // when they are first needed, so that paths have to be absolute where the working directory may change.
  // The snapshot keeps it and what it found: a provider that keeps snapshots must not be theirs.
  std::shared_ptr<const BaseProvider> bases = nullptr;
  std::vector<std::string> base_paths = {};  // files or directories
};

struct RunOptions {
  unsigned threads = 0;  // 0: all that this process may use
  Progress progress = nullptr;
};

// What is known of one chunk without decoding it.
struct ChunkInfo {
  std::uint16_t codec_id = 0;
  std::string_view codec;  // "unknown" if this version does not know it
  std::uint64_t offset = 0;
  std::uint32_t stored_bytes = 0;
  std::uint32_t raw_bytes = 0;
  std::uint32_t depth = 0;
  std::uint64_t stored_hash = 0;
  std::uint64_t decoded_hash = 0;
  bool uses_base = false;
};

struct BaseReference {
  SnapshotId id;
  std::string name;  // of the file when this one was written
};

// One thing that a verification found.
struct Damage {
  std::string where;  // "tensor 'x', chunk 3"
  Error error;
};

class Snapshot final : public Base {
 public:
  // Reads header, footer and index, and checks all they say; no payload is read and no base is opened.
  [[nodiscard]] static Result<std::shared_ptr<const Snapshot>> open(const std::string& path,
                                                                    const OpenOptions& options = {});
  ~Snapshot() override;

  [[nodiscard]] SnapshotId id() const noexcept override;
  [[nodiscard]] const std::string& name() const noexcept override;  // the path it was opened by
  [[nodiscard]] std::span<const TensorInfo> tensors() const noexcept override;
  [[nodiscard]] std::span<const StreamInfo> streams() const noexcept override;
  [[nodiscard]] std::optional<std::size_t> find(std::string_view tensor_name) const noexcept override;
  [[nodiscard]] std::optional<std::size_t> stream_of(std::size_t tensor) const noexcept override;
  [[nodiscard]] Result<void> read_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out,
                                           ReadContext& context) const override;
  [[nodiscard]] Result<ChunkHolder> holder(std::size_t stream, std::uint64_t chunk) const override;

  [[nodiscard]] std::uint64_t file_bytes() const noexcept;
  [[nodiscard]] std::span<const BaseReference> bases() const noexcept;
  [[nodiscard]] const std::optional<Value>& tree() const noexcept;
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& metadata() const noexcept;
  // The header of the safetensors file this was made from, verbatim.
  [[nodiscard]] const std::optional<std::string>& safetensors_header() const noexcept;
  [[nodiscard]] const std::string& writer() const noexcept;
  [[nodiscard]] const std::string& policy() const noexcept;
  [[nodiscard]] const std::string& objective() const noexcept;  // empty in files of writers that had none

  [[nodiscard]] Result<ChunkInfo> chunk_info(std::size_t stream, std::uint64_t chunk) const;
  [[nodiscard]] const std::string& reason(std::size_t stream) const noexcept;
  // What a stream lost before it was stored; nullopt where nothing was to be lost.
  [[nodiscard]] const std::optional<LossReport>& quantizer(std::size_t stream) const noexcept;

  // Bytes [offset, offset + out.size()) of a tensor, on the calling thread; decodes only the chunks it touches and what
  // those depend on.
  [[nodiscard]] Result<void> read_bytes(std::size_t tensor, std::uint64_t offset, std::span<std::byte> out) const;

  // Whole tensors into memory of the caller, in parallel over their chunks. Each `out` has exactly the tensor's size.
  struct ReadRequest {
    std::size_t tensor = 0;
    std::span<std::byte> out;
  };
  [[nodiscard]] Result<void> read(std::span<const ReadRequest> requests, const RunOptions& options = {}) const;

  // The bytes of all tensors in the order of `tensors()` (aliases again in their place), piece by piece; decoded in
  // parallel, in memory bounded by the number of threads.
  using Sink = std::function<Result<void>(std::span<const std::byte> piece)>;
  [[nodiscard]] Result<void> stream_all(const Sink& sink, const RunOptions& options = {}) const;

  // Reads every byte: payloads against their stored hashes, then, where `decode`, every chunk (and the bases it depends
  // on) against its decoded hash. An error only where verification itself could not go on.
  [[nodiscard]] Result<std::vector<Damage>> verify(bool decode = true, const RunOptions& options = {}) const;

  // To be asked before a file is replaced: invalid_argument if the file at `path` is this one, or one that this
  // snapshot depends on, over any number of steps. Opens all of those, and fails if one is not found.
  [[nodiscard]] Result<void> check_not_needed(const std::string& path) const;

  struct Impl;
  explicit Snapshot(std::unique_ptr<Impl> impl) noexcept;

 private:
  friend class SnapshotAccess;  // for the library itself

  std::unique_ptr<Impl> impl_;
};

// The id in a file's footer, without reading the rest; for finding a base among many files.
[[nodiscard]] Result<SnapshotId> peek_snapshot_id(const std::string& path);

// How two tensors of one name differ.
struct TensorDifference {
  enum class Kind : std::uint8_t { equal, changed, only_in_a, only_in_b, incomparable /* dtype or shape differ */ };

  std::string name;
  Kind kind = Kind::equal;
  std::uint64_t elements = 0;
  std::uint64_t changed = 0;      // elements whose bits differ
  std::uint64_t largest_ulp = 0;  // largest distance between changed elements, in representable steps
};

[[nodiscard]] Result<std::vector<TensorDifference>> compare(const Snapshot& a, const Snapshot& b,
                                                            const RunOptions& options = {});

}  // namespace bitsnap
