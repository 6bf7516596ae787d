// Finds the tensors of torch in the graph of a pickle: each is a call that rebuilds a tensor from a part of a storage,
// and a storage is a persistent id. Pure function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "interop/pickle/pickle_reader.hpp"
#include "interop/torch_tensors/tensor_names.hpp"
#include "interop/torch_tensors/torch_type.hpp"

namespace bitsnap::interop {

struct TorchStorage {
  std::string_view key;        // at most kMaxStorageKeyBytes, in the text of the pickle
  TorchType type;              // of its class
  std::uint64_t elements = 0;  // of its class
};

inline constexpr std::size_t kMaxStorageKeyBytes = 256;

struct TorchTensor {
  std::string name;         // unique
  std::size_t storage = 0;  // index
  TorchType type;
  std::uint64_t offset = 0;  // in the storage, elements
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> stride;  // elements, as many as dimensions
  NodeId node = kNoNode;              // the call
  bool is_local = false;              // the part of a DTensor that one rank holds
};

struct TorchObjects {
  std::string_view folder;             // as in PickleRole
  bool keys_are_addresses = false;     // as in PickleRole
  std::vector<TorchStorage> storages;  // in the order in which the walk meets them
  std::vector<TorchTensor> tensors;    // likewise; a tensor that the pickle names twice is there twice
};

// What the names of the objects of a pickle begin with.
struct PickleRole {
  std::string_view folder = "data/";  // of storages
  std::string_view root = {};         // of tensors; empty if names begin with the keys of the root
  // The keys of storages are addresses, which differ from file to file: storages are named by their number.
  bool keys_are_addresses = false;
};

// The name of a tensor that is the root of its pickle.
inline constexpr std::string_view kRootTensorName = "tensor";

// The name of what has none: "data/KEY", or "data/NUMBER" if keys are addresses.
[[nodiscard]] std::string storage_name(const TorchObjects& objects, std::size_t storage);

// `names` are those that the container has so far. corrupt if a storage or tensor has a negative size, or sizes and
// strides of different length; resource_exhausted if there are more tensors than `limits.tensors`, or if the walk needs
// more than 8 MiB and 32 bytes for each byte of the pickle, times `limits.max_cost`. `graph` and its text must outlive
// the result.
[[nodiscard]] Result<TorchObjects> find_torch_objects(const PickleGraph& graph, const PickleRole& role,
                                                      UniqueNames& names, const DecodeLimits& limits);

}  // namespace bitsnap::interop
