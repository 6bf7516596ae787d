// What a file of torch.save holds, as torch.load would return it: the values of its pickle, with its tensors. Executes
// nothing. Pure function.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/value.hpp>

#include "interop/pickle/pickle_reader.hpp"
#include "interop/torch_tensors/storage_split.hpp"
#include "interop/torch_tensors/tensor_walk.hpp"

namespace bitsnap::interop {

struct TorchStateTensor {
  std::string name;  // unique in the file
  TorchType type;
  std::vector<std::uint64_t> shape;   // elements
  std::vector<std::uint64_t> stride;  // elements, as many as dimensions
  std::uint64_t offset = 0;           // of element 0 in the file, bytes
};

struct TorchState {
  std::vector<TorchStateTensor> tensors;
  Value tree;  // its tensors are indices in `tensors`
  // Values that are in neither, by their places: objects of classes of a program, attributes of tensors, and tensors
  // that are more than their elements (quantized, conjugated, shards of DTensor).
  std::vector<std::string> left_out;
};

// `ranges` are those of `objects.storages` in the file. corrupt if a tensor exceeds its range; unsupported if its
// elements have an unknown size or are big-endian; resource_exhausted if the values exceed
// `limits`, or 65,536 and one for each byte of the pickle, or if the tensors, row-major, take more than 64 MiB and 64
// times the storages; both times `limits.max_cost`.
[[nodiscard]] Result<TorchState> read_torch_state(const PickleGraph& graph, const TorchObjects& objects,
                                                  std::span<const StorageRange> ranges, bool is_big_endian,
                                                  const DecodeLimits& limits);

}  // namespace bitsnap::interop
