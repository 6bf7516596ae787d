// The chunks that `bench` measures on: all of a file, or an even sample of them, in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <bitsnap/coder.hpp>
#include <bitsnap/error.hpp>

#include "cli/tensor_file.hpp"

namespace bitsnap::cli {

struct BenchSample {
  std::vector<CoderChunk> chunks;  // in memory of this sample
  std::uint64_t bytes = 0;         // of the chunks
  std::uint64_t total_bytes = 0;   // of all tensors of the file, tied ones once
  std::uint64_t based_bytes = 0;   // of chunks that have a base

  std::vector<std::unique_ptr<std::byte[]>> memory;
};

// Which chunks are taken depends on their sizes and order only. A chunk has a base where `base` (may be nullptr) has a
// tensor of that name, dtype and size. Not much more than `limit_bytes` are taken.
[[nodiscard]] Result<BenchSample> load_sample(const TensorFile& file, const TensorFile* base,
                                              std::uint64_t limit_bytes);

}  // namespace bitsnap::cli
