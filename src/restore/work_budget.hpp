// The work that one operation may cause, so that a small file never keeps a reader busy for long.
//
// An operation decodes each chunk of the files that it reads about once, and again what two others depend on when the
// cache has no room for it. A hostile file makes each chunk depend on several others, which depend on several others,
// or claims terabytes. So the budget follows from what decoding every chunk once costs, and from the size of the files.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

namespace bitsnap::restore {

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
