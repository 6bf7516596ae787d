// Starts the kernels on a stream. None of these functions waits; errors are those of CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "gpu/chunk_scan.hpp"
#include "gpu/lane_jobs.hpp"

namespace bitsnap::gpu {

// A block whose bits are wanted.
struct ScanJob {
  const std::uint8_t* elements = nullptr;
  std::uint64_t count = 0;
  BlockBits* bits = nullptr;  // the result
};

// A chunk whose samples are wanted.
struct GatherJob {
  const std::uint8_t* elements = nullptr;
  const std::uint32_t* starts = nullptr;
  std::uint32_t runs = 0;
  std::uint32_t run_elements = 0;
  std::uint8_t* to = nullptr;
};

// The jobs are in the memory of the GPU. Elements have two or four bytes.
cudaError_t launch_scan(std::size_t element_bytes, const ScanJob* jobs, std::size_t count, cudaStream_t stream);
cudaError_t launch_gather(std::size_t element_bytes, const GatherJob* jobs, std::size_t count, cudaStream_t stream);
cudaError_t launch_encode(std::size_t element_bytes, bool is_rotated, const EncodeJob* jobs, std::size_t count,
                          cudaStream_t stream);
cudaError_t launch_decode(std::size_t element_bytes, bool is_rotated, const DecodeJob* jobs, std::size_t count,
                          cudaStream_t stream);

}  // namespace bitsnap::gpu
