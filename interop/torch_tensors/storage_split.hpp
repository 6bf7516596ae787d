// Divides the storages of a file among the tensors that use them. Pure function.
#pragma once

#include <cstdint>
#include <span>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "interop/container/contents.hpp"
#include "interop/torch_tensors/tensor_walk.hpp"

namespace bitsnap::interop {

// Where the bytes of a storage lie in the file.
struct StorageRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Every byte of a storage belongs to one tensor of the result:
// - Tensors that overlap form a group. A contiguous tensor that covers its group is a tensor of the result. If there is
//   none, the group becomes one tensor with one dimension and the name of its first tensor, and this tensor is a view
//   of the same name. The others are views.
// - Bytes that no tensor uses become tensors with one dimension and the name of the storage.
// `ranges` are those of `objects.storages`, without overlaps. corrupt if a storage or a tensor exceeds its range;
// resource_exhausted if there are more than `limits.tensors` tensors. Takes O(n log n) time.
[[nodiscard]] Result<Contents> split_storages(const TorchObjects& objects, std::span<const StorageRange> ranges,
                                              bool is_big_endian, UniqueNames& names, const DecodeLimits& limits);

}  // namespace bitsnap::interop
