// Stands in for the CUDA runtime where there is no GPU, so that the code of the host is tested there: only what gpu/
// uses of it, with the names that CUDA gives.
//
// It is stricter than a GPU. Work given to a stream begins when the host waits for that stream. Memory of the device has
// unspecified contents at first, ends at a page that nobody may access, and can be accessed by work of a stream alone.
#pragma once

#include <cstddef>
#include <functional>

// NOLINTBEGIN(readability-identifier-naming): the names of CUDA

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
struct cudaDeviceProp {
  char name[256];
  int multiProcessorCount;
};
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };
using cudaMemPool_t = struct CUmemPoolHandle_st*;
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;

cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);

cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMallocAsync(void** memory, std::size_t size, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream);
cudaError_t cudaMallocHost(void** memory, std::size_t size);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind kind, cudaStream_t stream);

// NOLINTEND(readability-identifier-naming)

namespace bitsnap::gpu::emulated {

// Gives a stream some work, as the launch of a kernel does.
cudaError_t launch(cudaStream_t stream, std::function<void()> work);

// Lets call number `calls` from now on fail, of those that can fail for want of memory; 0: none. Returns the number of
// such calls since the last time.
std::size_t fail_at(std::size_t calls);

// What is allocated on the device and not freed.
[[nodiscard]] std::size_t allocations();

}  // namespace bitsnap::gpu::emulated
