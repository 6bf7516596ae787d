// A warp of 32 threads, each of which does the work of two lanes. emulated_warp.hpp has the same functions.
#pragma once

#include <cstdint>

#include "gpu/lane_jobs.hpp"

namespace bitsnap::gpu {

class CudaWarp {
 public:
  template <typename T>
  class PerLane {
   public:
    __device__ T& operator[](unsigned slot) { return values_[slot]; }
    __device__ const T& operator[](unsigned slot) const { return values_[slot]; }

   private:
    T values_[2];
  };

  template <typename Body>
  __device__ void each(Body&& body) const {
    body(thread_, 0U);
    body(thread_ + kThreads, 1U);
  }

  template <typename Test>
  [[nodiscard]] __device__ std::uint64_t vote(Test&& test) const {
    const std::uint64_t lower = __ballot_sync(kAll, test(thread_, 0U));
    const std::uint64_t upper = __ballot_sync(kAll, test(thread_ + kThreads, 1U));
    return lower | upper << kThreads;
  }

  [[nodiscard]] __device__ std::uint64_t sum_before(PerLane<std::uint64_t>& numbers) const {
    const std::uint64_t lower = sum_before(numbers[0]);
    const std::uint64_t upper = sum_before(numbers[1]);
    numbers[1] += lower;
    return lower + upper;
  }

  [[nodiscard]] __device__ std::uint32_t any_of(const PerLane<std::uint32_t>& bits) const {
    return __reduce_or_sync(kAll, bits[0] | bits[1]);
  }

  __device__ void sync() const { __syncwarp(); }

 private:
  static constexpr unsigned kAll = 0xffffffff;
  static constexpr unsigned kThreads = 32;

  // Of one number of each thread.
  [[nodiscard]] __device__ std::uint64_t sum_before(std::uint64_t& number) const {
    std::uint64_t sum = number;
    for (unsigned distance = 1; distance < kThreads; distance *= 2) {
      const std::uint64_t before = __shfl_up_sync(kAll, sum, distance);
      if (thread_ >= distance) sum += before;
    }
    number = sum - number;
    return __shfl_sync(kAll, sum, kThreads - 1);
  }

  const unsigned thread_ = threadIdx.x % kThreads;
};

}  // namespace bitsnap::gpu
