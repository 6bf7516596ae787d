// Memory of a GPU that is allocated and freed in the order of a stream, and what is copied to it and from it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include <bitsnap/error.hpp>

#include "base/try.hpp"

namespace bitsnap::gpu {

[[nodiscard]] inline Result<void> checked(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());  // the next launch would find the same error
  const ErrorKind kind = status == cudaErrorMemoryAllocation ? ErrorKind::resource_exhausted : ErrorKind::io;
  return fail(kind, std::string(what) + ": " + cudaGetErrorString(status));
}

// An array on the device.
template <typename T>
class DeviceArray {
 public:
  [[nodiscard]] static Result<DeviceArray> make(std::size_t size, cudaStream_t stream) {
    void* memory = nullptr;
    BITSNAP_TRY(
        checked(cudaMallocAsync(&memory, std::max<std::size_t>(size, 1) * sizeof(T), stream), "cudaMallocAsync"));
    return DeviceArray(static_cast<T*>(memory), size, stream);
  }
  // A copy of `values`, which must live until the stream is done.
  [[nodiscard]] static Result<DeviceArray> copy_of(std::span<const T> values, cudaStream_t stream) {
    BITSNAP_ASSIGN(DeviceArray made, make(values.size(), stream));
    BITSNAP_TRY(
        checked(cudaMemcpyAsync(made.data(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice, stream),
                "cudaMemcpyAsync"));
    return made;
  }
  DeviceArray(DeviceArray&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), size_(other.size_), stream_(other.stream_) {}
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() {
    if (memory_ != nullptr) cudaFreeAsync(memory_, stream_);
  }

  [[nodiscard]] T* data() const noexcept { return memory_; }
  // Waits for the stream.
  [[nodiscard]] Result<std::vector<T>> fetch() const {
    std::vector<T> values(size_);
    BITSNAP_TRY(checked(cudaMemcpyAsync(values.data(), memory_, size_ * sizeof(T), cudaMemcpyDeviceToHost, stream_),
                        "cudaMemcpyAsync"));
    BITSNAP_TRY(checked(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"));
    return values;
  }

 private:
  DeviceArray(T* memory, std::size_t size, cudaStream_t stream) noexcept
      : memory_(memory), size_(size), stream_(stream) {}

  T* memory_;
  std::size_t size_;
  cudaStream_t stream_;
};

// Memory of the host that a GPU copies from and to without another copy.
class PinnedArray {
 public:
  [[nodiscard]] static Result<PinnedArray> make(std::size_t size) {
    void* memory = nullptr;
    BITSNAP_TRY(checked(cudaMallocHost(&memory, size), "cudaMallocHost"));
    return PinnedArray(static_cast<std::byte*>(memory));
  }
  PinnedArray(PinnedArray&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  PinnedArray& operator=(PinnedArray&&) = delete;
  ~PinnedArray() { cudaFreeHost(memory_); }

  [[nodiscard]] std::byte* data() const noexcept { return memory_; }

 private:
  explicit PinnedArray(std::byte* memory) noexcept : memory_(memory) {}

  std::byte* memory_;
};

// Waits for the stream at the end of a scope, also if that ends with an error: kernels write to the caller's memory,
// and copies read from vectors that were made before this.
class StreamEnd {
 public:
  explicit StreamEnd(cudaStream_t stream) noexcept : stream_(stream) {}
  StreamEnd(const StreamEnd&) = delete;
  StreamEnd& operator=(const StreamEnd&) = delete;
  ~StreamEnd() { cudaStreamSynchronize(stream_); }

 private:
  cudaStream_t stream_;
};

// The time between two points of a stream.
class StreamTimer {
 public:
  explicit StreamTimer(cudaStream_t stream) noexcept : stream_(stream) {
    cudaEventCreate(&begin_);
    cudaEventCreate(&end_);
    cudaEventRecord(begin_, stream_);
  }
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;
  ~StreamTimer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }

  void stop() noexcept { cudaEventRecord(end_, stream_); }
  // Waits for stop().
  [[nodiscard]] double seconds() const noexcept {
    float milliseconds = 0;
    cudaEventSynchronize(end_);
    cudaEventElapsedTime(&milliseconds, begin_, end_);
    return static_cast<double>(milliseconds) / 1000;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace bitsnap::gpu
