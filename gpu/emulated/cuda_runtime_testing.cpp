#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"

using Clock = std::chrono::steady_clock;

// What is in a namespace of its own has to be reached through these two types, which CUDA declares in the global one.
struct CUstream_st {  // NOLINT(readability-identifier-naming)
  std::vector<std::function<void()>> work;
};
struct CUevent_st {  // NOLINT(readability-identifier-naming)
  cudaStream_t stream = nullptr;
  std::shared_ptr<Clock::time_point> time = std::make_shared<Clock::time_point>();
};

namespace bitsnap::gpu::emulated {
namespace {

// An allocation: its pages, and one more that stays closed.
struct Pages {
  std::byte* first = nullptr;
  std::size_t size = 0;
};

struct Device {
  std::mutex mutex;
  std::map<const std::byte*, Pages> memory;  // by the address that the host was given
  CUstream_st default_stream;
  std::size_t fallible_calls = 0;
  std::size_t fails_at = 0;

  [[nodiscard]] bool has(const void* address) {
    const std::scoped_lock lock(mutex);
    const auto after = memory.upper_bound(static_cast<const std::byte*>(address));
    if (after == memory.begin()) return false;
    const Pages& pages = std::prev(after)->second;
    return address < pages.first + pages.size;
  }
  void protect(int access) {
    const std::scoped_lock lock(mutex);
    for (const auto& [address, pages] : memory) mprotect(pages.first, pages.size, access);
  }
  [[nodiscard]] bool fails() {
    const std::scoped_lock lock(mutex);
    return ++fallible_calls == fails_at;
  }
  [[nodiscard]] CUstream_st& of(cudaStream_t stream) { return stream == nullptr ? default_stream : *stream; }
};

Device& device() {
  static Device only;
  return only;
}

void run(CUstream_st& stream) {
  if (stream.work.empty()) return;
  device().protect(PROT_READ | PROT_WRITE);
  for (const auto& work : std::exchange(stream.work, {})) work();
  device().protect(PROT_NONE);
}

}  // namespace

cudaError_t launch(cudaStream_t stream, std::function<void()> work) {
  device().of(stream).work.push_back(std::move(work));
  return cudaSuccess;
}

std::size_t fail_at(std::size_t calls) {
  const std::scoped_lock lock(device().mutex);
  device().fails_at = calls;
  return std::exchange(device().fallible_calls, 0);
}

std::size_t allocations() {
  const std::scoped_lock lock(device().mutex);
  return device().memory.size();
}

}  // namespace bitsnap::gpu::emulated

namespace emulated = bitsnap::gpu::emulated;

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "invalid argument";
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {.name = "no GPU, emulated", .multiProcessorCount = 1};
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = std::make_unique<CUstream_st>().release();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  emulated::run(*stream);
  std::unique_ptr<CUstream_st>(stream).reset();
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  emulated::run(emulated::device().of(stream));
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = std::make_unique<CUevent_st>().release();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::unique_ptr<CUevent_st>(event).reset();
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream;
  return emulated::launch(stream, [time = event->time] { *time = Clock::now(); });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return cudaStreamSynchronize(event->stream); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *begin->time).count();
  return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMallocAsync(void** memory, std::size_t size, cudaStream_t) {
  constexpr std::size_t kAlignment = 16;
  if (emulated::device().fails()) return cudaErrorMemoryAllocation;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t whole = (size + page - 1) / page * page;
  void* const mapped = mmap(nullptr, whole + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return cudaErrorMemoryAllocation;
  auto* const first = static_cast<std::byte*>(mapped);
  mprotect(first, whole, PROT_READ | PROT_WRITE);
  std::memset(first, 0xa5, whole);
  mprotect(first, whole, PROT_NONE);
  std::byte* const given = first + (whole - size) / kAlignment * kAlignment;
  const std::scoped_lock lock(emulated::device().mutex);
  emulated::device().memory[given] = {first, whole};
  *memory = given;
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  return emulated::launch(stream, [memory] {
    const std::scoped_lock lock(emulated::device().mutex);
    const auto freed = emulated::device().memory.find(static_cast<std::byte*>(memory));
    munmap(freed->second.first, freed->second.size + static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
    emulated::device().memory.erase(freed);
  });
}
cudaError_t cudaMallocHost(void** memory, std::size_t size) {
  if (emulated::device().fails()) return cudaErrorMemoryAllocation;
  *memory = std::malloc(size);  // NOLINT(cppcoreguidelines-no-malloc)
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);  // NOLINT(cppcoreguidelines-no-malloc)
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind kind, cudaStream_t stream) {
  if (size > 0 && (emulated::device().has(to) != (kind != cudaMemcpyDeviceToHost) ||
                   emulated::device().has(from) != (kind != cudaMemcpyHostToDevice))) {
    return cudaErrorInvalidValue;
  }
  return emulated::launch(stream, [to, from, size] { std::memcpy(to, from, size); });
}
