// The functions of torch that rebuild tensors, as pickles name them, and what their arguments mean. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "interop/pickle/pickle_reader.hpp"
#include "interop/torch_tensors/tensor_names.hpp"
#include "interop/torch_tensors/torch_type.hpp"

namespace bitsnap::interop {

// The name of a function or class of torch: "_rebuild_tensor_v2" of torch._utils. Empty if the node is none.
[[nodiscard]] std::string_view torch_function(const PickleGraph& graph, NodeId node);

// The same for the modules builtins and collections.
[[nodiscard]] std::string_view python_function(const PickleGraph& graph, NodeId node);

// The numbers of a tuple or a torch.Size; nullopt if the node is something else; corrupt if one is negative or if there
// are more than `limits.dimensions`.
[[nodiscard]] Result<std::optional<std::vector<std::uint64_t>>> read_extents(const PickleGraph& graph, NodeId node,
                                                                             const DecodeLimits& limits);

// The persistent id ('storage', class, key, location, elements).
struct StorageId {
  std::string_view key;
  TorchType type;
  std::uint64_t elements = 0;
  std::uint64_t view_offset = 0;  // elements; in old files a storage may be a part of another one
};
// nullopt if the node is something else; corrupt if the number of elements is negative or the key is too long.
[[nodiscard]] Result<std::optional<StorageId>> read_storage_id(const PickleGraph& graph, NodeId node);

// A call that rebuilds a tensor, after the calls around it that only change its class: a Parameter, a subclass.
struct TensorCall {
  NodeId storage = kNoNode;
  NodeId offset = kNoNode;
  NodeId shape = kNoNode;
  NodeId stride = kNoNode;
  TorchType type;
  NodeId scales = kNoNode;  // of a quantized tensor: a tensor or a number
  NodeId zero_points = kNoNode;
  std::vector<NodeId> states;    // attributes of the object
  NodeId metadata = kNoNode;     // a dict that says how the elements differ from those of the storage
  bool has_other_class = false;  // than Tensor and Parameter
};
[[nodiscard]] std::optional<TensorCall> find_tensor_call(const PickleGraph& graph, NodeId node);

struct TensorGeometry {
  std::uint64_t offset = 0;  // elements, from the start of the storage that has the bytes
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> stride;
};
// nullopt if the arguments have other types; corrupt if they do not describe a tensor.
[[nodiscard]] Result<std::optional<TensorGeometry>> read_geometry(const PickleGraph& graph, const TensorCall& call,
                                                                  const DecodeLimits& limits);

// How the tensors in an argument of a function are named.
struct ArgumentName {
  bool is_known = false;
  bool is_state = false;                         // the argument holds attributes
  NamePart part = {};                            // of the argument
  std::span<const std::string_view> parts = {};  // of the items of the argument, if it is a tuple
};
[[nodiscard]] ArgumentName argument_name(const PickleGraph& graph, std::string_view function,
                                         const PickleNode& arguments, std::size_t index);

}  // namespace bitsnap::interop
