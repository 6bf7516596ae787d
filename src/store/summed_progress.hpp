// Reports the progress of several files, one after another, as that of one.
#pragma once

#include <algorithm>
#include <cstdint>

#include <bitsnap/snapshot.hpp>

namespace bitsnap::store {

// Outlives what next() returns. One file at a time.
class SummedProgress {
 public:
  // `progress` outlives this; `total_bytes` of all files.
  SummedProgress(const Progress& progress, std::uint64_t total_bytes) : progress_(progress), total_(total_bytes) {}

  // For the next file, which has so many bytes.
  [[nodiscard]] Progress next(std::uint64_t bytes) {
    before_ += current_;
    current_ = bytes;
    if (!progress_) return nullptr;
    return [this](std::uint64_t done, std::uint64_t) { return progress_(std::min(before_ + done, total_), total_); };
  }

 private:
  const Progress& progress_;
  const std::uint64_t total_;
  std::uint64_t before_ = 0;
  std::uint64_t current_ = 0;
};

}  // namespace bitsnap::store
