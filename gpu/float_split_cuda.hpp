// Codes chunks of bf16 and f32 that lie in the memory of a GPU as the codec float_split does, byte for byte, and
// decodes them there. A first step: only the codec's lanes, and nothing of bitsnap uses it yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <cuda_runtime_api.h>

#include <bitsnap/dtype.hpp>

#include "base/bytes.hpp"
#include "exec/executor.hpp"

namespace bitsnap::gpu {

class FloatSplitCoder {
 public:
  // `executor` plans chunks in parallel. `stream` belongs to the caller, as do all chunks and payloads; both must
  // outlive the calls.
  FloatSplitCoder(exec::Executor& executor, cudaStream_t stream) noexcept : executor_(executor), stream_(stream) {}

  struct Chunk {
    const void* elements = nullptr;  // on the device, aligned as elements are
    std::size_t count = 0;           // of elements
    void* payload = nullptr;         // on the device, with room for as many bytes as the elements have
  };

  // Encodes chunks after what was given to the stream before, and waits until all are encoded. Returns the size of each
  // payload; 0 if the codec uses another form or the payload would not be smaller: then the CPU has to code the chunk.
  // Errors: resource_exhausted (no memory on the device), io (any other error of CUDA).
  [[nodiscard]] Result<std::vector<std::uint64_t>> encode(DType dtype, std::span<const Chunk> chunks);

  struct Payload {
    ConstByteSpan bytes;              // in plain memory
    const void* on_device = nullptr;  // the same bytes
    void* elements = nullptr;         // on the device: where they go
    std::size_t count = 0;
  };

  // Decodes payloads, and waits until all are decoded. Returns for each whether it was decoded; the codec on the CPU
  // decodes the others, or says how they are damaged. Errors: as above.
  [[nodiscard]] Result<std::vector<bool>> decode(DType dtype, std::span<const Payload> payloads);

  // The time of the kernels in the last call, and of the planning on the CPU, in seconds.
  [[nodiscard]] double kernel_seconds() const noexcept { return kernel_seconds_; }
  [[nodiscard]] double plan_seconds() const noexcept { return plan_seconds_; }

 private:
  exec::Executor& executor_;
  const cudaStream_t stream_;
  double kernel_seconds_ = 0;
  double plan_seconds_ = 0;
};

}  // namespace bitsnap::gpu
