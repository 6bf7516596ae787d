// SummedProgress: reports the progress of several files, which come one after another, as the progress of one.
#pragma once

#include <algorithm>
#include <cstdint>

#include <bitsnap/snapshot.hpp>

namespace bitsnap::store {

// Must outlive what next() returns. Handles one file at a time.
class SummedProgress {
 public:
  // `progress` must outlive this object. `total_bytes` is the sum over all files.
  SummedProgress(const Progress& progress, std::uint64_t total_bytes) : progress_(progress), total_(total_bytes) {}

  // Returns the progress function for the next file, which has `bytes` bytes.
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
