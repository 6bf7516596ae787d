// Working memory and budget of one read. The budget bounds the work that a hostile file can cause; a cache makes sure
// that a chunk that several others depend on is decoded once.
//
// One thread uses a ReadContext. Decoding an input of a chunk nests in the decoding of that chunk, as deep as the chain
// of dependences. Every decoded chunk counts, so that a file cannot fan out without limit.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include <bitsnap/dtype.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "base/bytes.hpp"
#include "base/function_ref.hpp"
#include "base/scratch.hpp"
#include "restore/decoded_chunks.hpp"

namespace bitsnap::restore {

// The work that one operation may cause, so that a small file never keeps a reader busy for long.
//
// An operation decodes each chunk of the files that it reads about once, and again what two others depend on when the
// cache has no room for it. A hostile file makes each chunk depend on several others, which depend on several others,
// or claims terabytes. So the budget follows from what decoding every chunk once costs, and from the size of the files.
class WorkBudget {
 public:
  explicit WorkBudget(const DecodeLimits& limits) noexcept;

  // The cost of decoding a chunk, in bytes of a usual codec. `is_fill`: by filling or copying memory.
  [[nodiscard]] static constexpr std::uint64_t cost_of(std::uint64_t bytes, bool is_fill) noexcept {
    // A chunk of few bytes costs calls and a hash.
    constexpr std::uint64_t kChunkCost = 4096;
    constexpr std::uint64_t kFillSpeedup = 8;
    return kChunkCost + (is_fill ? bytes / kFillSpeedup : bytes);
  }

  // What a file adds to the budget of an operation that reads it. `cost`: of all its chunks.
  [[nodiscard]] static std::uint64_t allowance_of(std::uint64_t cost, std::uint64_t file_bytes) noexcept;

  // Adds the allowance of a file; once for each opening. Thread-safe.
  void admit(std::uint64_t opening, std::uint64_t allowance);

  // resource_exhausted if the operation has decoded too much. Thread-safe.
  [[nodiscard]] Result<void> spend(std::uint64_t cost);

 private:
  const double max_cost_;
  std::atomic<double> allowed_;
  std::atomic<std::uint64_t> spent_ = 0;
  std::mutex mutex_;
  std::vector<std::uint64_t> admitted_;
};

}  // namespace bitsnap::restore

namespace bitsnap {

class ReadContext {
 public:
  // For decoded chunks. If tensors depend on each other and on the previous snapshot, like those of one optimizer,
  // about eight chunks are needed again, most of 1 MiB and none above 2 MiB.
  static constexpr std::uint64_t kRememberedBytes = std::uint64_t{16} << 20;

  // The cache size of each of `contexts` contexts: together at most 512 MiB, but room for a few chunks in each.
  [[nodiscard]] static constexpr std::uint64_t remembered_bytes_of(std::size_t contexts) noexcept {
    constexpr std::uint64_t kTogether = std::uint64_t{512} << 20;
    constexpr std::uint64_t kLeast = std::uint64_t{4} << 20;
    return std::clamp(kTogether / std::max<std::uint64_t>(contexts, 1), kLeast, kRememberedBytes);
  }

  // `budget`: of the operation, shared by its contexts; must outlive them. nullptr: one for this context alone.
  explicit ReadContext(const DecodeLimits& limits = {}, std::uint64_t remembered_bytes = kRememberedBytes,
                       restore::WorkBudget* budget = nullptr) noexcept
      : decoded_(remembered_bytes),
        own_budget_(limits),
        budget_(budget != nullptr ? *budget : own_budget_),
        max_depth_(limits.chain_depth),
        max_decodes_(limits.chunk_decodes) {}

  [[nodiscard]] Scratch& scratch() noexcept { return scratch_; }

  // Begins a read that a user requests: it may follow chains from the start again. Cached chunks stay, and so does what
  // the operation has spent.
  void restart() noexcept {
    depth_ = 0;
    decodes_ = 0;
    expected_ = Expected::nothing;
  }

  // Whether an input of another chunk is being decoded.
  [[nodiscard]] bool is_nested() const noexcept { return depth_ > 0; }

  // Which of the requested chunks to cache from now on, until restart(). Always cached are chunks that two inputs of a
  // chunk may depend on, and chunks that were used in part.
  enum class Expected : std::uint8_t {
    nothing,  // none of them is needed again
    peers,    // those that others of their file depend on
    all,      // each of them, with all that it depends on
  };
  void expect_again(Expected expected) noexcept { expected_ = expected; }

  // Empties the cache before reading unrelated chunks: new entries reuse its memory, which is still in the CPU's cache.
  void forget() noexcept { decoded_.clear(); }

  struct Chunk {
    restore::ChunkKey key;
    bool is_fork = false;         // it has several inputs, which may depend on the same chunks
    bool is_peer = false;         // others of its file depend on it
    bool is_part = false;         // only a part of it is needed: somebody else may need the rest
    bool is_reference = false;    // it is what its input is: remembering that is enough
    std::uint64_t cost = 0;       // of decoding it, see WorkBudget
    std::uint64_t allowance = 0;  // of its file
  };
  // Fills `out` with a chunk: from the cache, or by `decode`, which may decode other chunks and whose working memory is
  // freed. Fails with corrupt if the chain is too deep, with resource_exhausted if there are too many chunks. Failures
  // are not cached.
  [[nodiscard]] Result<void> decode_once(const Chunk& chunk, ByteSpan out, FunctionRef<Result<void>()> decode);

  [[nodiscard]] const restore::DecodedChunks& decoded() const noexcept { return decoded_; }

  // A chunk of equal elements. Verification decodes one of several that are the same.
  struct Constant {
    DType dtype = DType::opaque;
    std::size_t size_bytes = 0;
    std::array<std::byte, 8> element{};
    std::uint64_t decoded_hash = 0;

    friend bool operator==(const Constant&, const Constant&) = default;
  };
  [[nodiscard]] bool is_last_constant(const Constant& constant) const noexcept { return last_constant_ == constant; }
  void set_last_constant(const Constant& constant) noexcept { last_constant_ = constant; }

  // Chunks decoded since restart().
  [[nodiscard]] std::uint32_t decodes() const noexcept { return decodes_; }

 private:
  class Step;

  [[nodiscard]] Result<void> check_budget(const Chunk& chunk);
  [[nodiscard]] bool recall(const restore::ChunkKey& key, ByteSpan out) noexcept;
  [[nodiscard]] bool is_needed_again(const Chunk& chunk) const noexcept;

  Scratch scratch_;
  restore::DecodedChunks decoded_;
  restore::WorkBudget own_budget_;
  restore::WorkBudget& budget_;
  std::uint64_t admitted_ = 0;  // the opening of the last chunk
  Constant last_constant_;
  std::uint32_t max_depth_;
  std::uint32_t max_decodes_;
  std::uint32_t depth_ = 0;
  std::uint32_t decodes_ = 0;
  std::uint32_t deepest_ = 0;  // the largest depth that a chunk was decoded at for the one that is being decoded
  std::uint32_t forks_ = 0;    // of the chunks that are being decoded, those with several inputs
  Expected expected_ = Expected::nothing;
};

}  // namespace bitsnap
