#include "gpu/lane_kernels.hpp"

#include "gpu/cuda_warp.hpp"
#include "gpu/lane_decoder.hpp"
#include "gpu/lane_encoder.hpp"

namespace bitsnap::gpu {
namespace {

constexpr unsigned kThreads = 32;  // of a warp
constexpr unsigned kScanWarps = 4;

template <unsigned kBytes>
__global__ void scan(const ScanJob* jobs, std::size_t count) {
  const std::size_t number = std::size_t{blockIdx.x} * kScanWarps + threadIdx.x / kThreads;
  if (number >= count) return;
  const ScanJob job = jobs[number];
  const BlockBits bits = scan_block<kBytes>(CudaWarp(), job.elements, job.count);
  if (threadIdx.x % kThreads == 0) *job.bits = bits;
}

template <unsigned kBytes>
__global__ void gather(const GatherJob* jobs) {
  const GatherJob job = jobs[blockIdx.x];
  gather_runs<kBytes>(CudaWarp(), job.elements, job.starts, job.runs, job.run_elements, job.to);
}

// A block of threads for each chunk, a warp for each group.
template <unsigned kBytes, bool kRotated>
__global__ void __launch_bounds__(kGroups* kThreads) encode(const EncodeJob* jobs) {
  __shared__ std::uint32_t entries[kGroups][256];
  __shared__ EncodedGroup ends[kGroups];
  const unsigned group = threadIdx.x / kThreads;
  LaneEncoder<CudaWarp, kBytes, kRotated> encoder(CudaWarp(), jobs[blockIdx.x], group, entries[group]);
  const EncodedGroup end = encoder.encode();
  if (threadIdx.x % kThreads == 0) ends[group] = end;
  __syncthreads();
  encoder.assemble(ends);
}

template <unsigned kBytes, bool kRotated>
__global__ void __launch_bounds__(kGroups* kThreads) decode(const DecodeJob* jobs) {
  __shared__ std::uint32_t entries[kGroups][256];
  __shared__ bool are_valid[kGroups];
  const unsigned group = threadIdx.x / kThreads;
  const DecodeJob& job = jobs[blockIdx.x];
  LaneDecoder<CudaWarp, kBytes, kRotated> decoder(CudaWarp(), job, group, entries[group]);
  const bool is_valid = decoder.decode();
  if (threadIdx.x % kThreads == 0) are_valid[group] = is_valid;
  __syncthreads();
  if (group != 0) return;
  const bool are_right = decoder.put_escapes();
  if (threadIdx.x == 0) {
    *job.is_valid = are_valid[0] && are_valid[1] && are_valid[2] && are_valid[3] && are_right ? 1 : 0;
  }
}

}  // namespace

cudaError_t launch_scan(std::size_t element_bytes, const ScanJob* jobs, std::size_t count, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>((count + kScanWarps - 1) / kScanWarps);
  const auto kernel = element_bytes == 2 ? scan<2> : scan<4>;
  kernel<<<grid, kScanWarps * kThreads, 0, stream>>>(jobs, count);
  return cudaGetLastError();
}

cudaError_t launch_gather(std::size_t element_bytes, const GatherJob* jobs, std::size_t count, cudaStream_t stream) {
  const auto kernel = element_bytes == 2 ? gather<2> : gather<4>;
  kernel<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(jobs);
  return cudaGetLastError();
}

cudaError_t launch_encode(std::size_t element_bytes, bool is_rotated, const EncodeJob* jobs, std::size_t count,
                          cudaStream_t stream) {
  const auto kernel = element_bytes == 2 ? (is_rotated ? encode<2, true> : encode<2, false>)
                                         : (is_rotated ? encode<4, true> : encode<4, false>);
  kernel<<<static_cast<unsigned>(count), kGroups * kThreads, 0, stream>>>(jobs);
  return cudaGetLastError();
}

cudaError_t launch_decode(std::size_t element_bytes, bool is_rotated, const DecodeJob* jobs, std::size_t count,
                          cudaStream_t stream) {
  const auto kernel = element_bytes == 2 ? (is_rotated ? decode<2, true> : decode<2, false>)
                                         : (is_rotated ? decode<4, true> : decode<4, false>);
  kernel<<<static_cast<unsigned>(count), kGroups * kThreads, 0, stream>>>(jobs);
  return cudaGetLastError();
}

}  // namespace bitsnap::gpu
