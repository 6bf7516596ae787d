// The tensors of a whole checkpoint: each with the boxes that its shards hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/dtype.hpp>
#include <bitsnap/tensor.hpp>

namespace bitsnap {

// One stored box of a global tensor.
struct TensorPart {
  std::uint32_t shard = 0;
  std::size_t tensor = 0;             // number in the snapshot of that shard
  std::vector<std::uint64_t> offset;  // elements in each dimension of the global tensor
  std::vector<std::uint64_t> extent;  // elements in each dimension

  friend bool operator==(const TensorPart&, const TensorPart&) = default;
};

// A tensor that a checkpoint holds, in one part or in several. Equal parts of several shards are listed once. A tensor
// that several shards hold whole, under one name and with other values, is one tensor for each of them, with the name
// "rank-N/NAME".
struct GlobalTensor {
  std::string name;
  DType dtype = DType::opaque;
  std::string dtype_name;
  std::vector<std::uint64_t> shape;  // elements in each dimension
  Role role = Role::other;
  std::vector<TensorPart> parts;  // none is empty; in the order of their offsets

  friend bool operator==(const GlobalTensor&, const GlobalTensor&) = default;
};

// A box of a global tensor, and the memory that it is read into.
struct TensorBox {
  std::string name;
  std::string dtype_name;             // of the memory; must be that of the tensor
  std::vector<std::uint64_t> offset;  // elements in each dimension
  std::vector<std::uint64_t> extent;  // elements in each dimension
  std::byte* out = nullptr;           // of the first element of the box
  std::vector<std::int64_t> strides;  // bytes between neighbours in each dimension, of any sign
};

}  // namespace bitsnap
