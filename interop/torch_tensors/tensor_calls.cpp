#include "interop/torch_tensors/tensor_calls.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/try.hpp"
#include "interop/torch_tensors/tensor_walk.hpp"

namespace bitsnap::interop {
namespace {

// A Parameter of a subclass is two calls around one; more are not followed.
constexpr int kMostWrappers = 8;

// kNoNode if there are fewer.
NodeId argument_at(const PickleNode* arguments, std::size_t index) {
  return arguments != nullptr && index < arguments->items.size() ? arguments->items[index] : kNoNode;
}

std::optional<std::uint64_t> unsigned_integer(const PickleGraph& graph, NodeId node) {
  const PickleNode* found = graph.find(node, PickleKind::integer);
  if (found == nullptr || found->integer < 0) return std::nullopt;
  return static_cast<std::uint64_t>(found->integer);
}

TorchType type_of_storage(const PickleGraph& graph, NodeId storage) {
  const PickleNode* id = graph.find(storage, PickleKind::persistent_id);
  if (id == nullptr) return {};
  return torch_storage_type(torch_function(graph, argument_at(graph.find(id->arguments, PickleKind::tuple), 1)));
}

void read_quantizer(const PickleGraph& graph, NodeId parameters, TensorCall& call) {
  const PickleNode* tuple = graph.find(parameters, PickleKind::tuple);
  call.scales = argument_at(tuple, 1);
  call.zero_points = argument_at(tuple, 2);
}

// The call of one of the functions that make a tensor from a storage.
std::optional<TensorCall> read_tensor_call(const PickleGraph& graph, std::string_view function,
                                           const PickleNode* arguments) {
  if (function != "_rebuild_tensor" && function != "_rebuild_tensor_v2" && function != "_rebuild_tensor_v3" &&
      function != "_rebuild_qtensor") {
    return std::nullopt;
  }
  if (arguments == nullptr || arguments->items.size() < 4) return std::nullopt;
  TensorCall call;
  call.storage = arguments->items[0];
  call.offset = arguments->items[1];
  call.shape = arguments->items[2];
  call.stride = arguments->items[3];
  call.type = function == "_rebuild_tensor_v3" ? torch_dtype(torch_function(graph, argument_at(arguments, 6)))
                                               : type_of_storage(graph, call.storage);
  if (function == "_rebuild_tensor_v2") call.metadata = argument_at(arguments, 6);
  if (function == "_rebuild_tensor_v3") call.metadata = argument_at(arguments, 7);
  if (function == "_rebuild_qtensor") read_quantizer(graph, argument_at(arguments, 4), call);
  return call;
}

}  // namespace

Result<std::optional<std::vector<std::uint64_t>>> read_extents(const PickleGraph& graph, NodeId node,
                                                               const DecodeLimits& limits) {
  const PickleNode* tuple = graph.find(node, PickleKind::tuple);
  if (tuple == nullptr) {
    // torch.Size((2, 3))
    const PickleNode* size = graph.find(node, PickleKind::call);
    if (size == nullptr || torch_function(graph, size->callable) != "Size") return std::nullopt;
    tuple = graph.find(argument_at(graph.find(size->arguments, PickleKind::tuple), 0), PickleKind::tuple);
    if (tuple == nullptr) return std::nullopt;
  }
  if (tuple->items.size() > limits.dimensions) {
    return fail(ErrorKind::corrupt,
                fmt::format("a tensor has {} dimensions, the limit is {}", tuple->items.size(), limits.dimensions));
  }
  std::vector<std::uint64_t> extents;
  for (const NodeId item : tuple->items) {
    if (graph.find(item, PickleKind::integer) == nullptr) return std::nullopt;
    const std::optional<std::uint64_t> extent = unsigned_integer(graph, item);
    if (!extent) return fail(ErrorKind::corrupt, fmt::format("a size or stride is {}", graph.at(item).integer));
    extents.push_back(*extent);
  }
  return extents;
}

std::string_view torch_function(const PickleGraph& graph, NodeId node) {
  const PickleNode* global = graph.find(node, PickleKind::global);
  if (global == nullptr) return {};
  const std::string_view module = graph.at(global->items[0]).text;
  return module == "torch" || module.starts_with("torch.") ? graph.at(global->items[1]).text : std::string_view();
}

std::string_view python_function(const PickleGraph& graph, NodeId node) {
  const PickleNode* global = graph.find(node, PickleKind::global);
  if (global == nullptr) return {};
  const std::string_view module = graph.at(global->items[0]).text;
  const bool is_standard = module == "builtins" || module == "__builtin__" || module == "collections";
  return is_standard ? graph.at(global->items[1]).text : std::string_view();
}

Result<std::optional<StorageId>> read_storage_id(const PickleGraph& graph, NodeId node) {
  const PickleNode* id = graph.find(node, PickleKind::persistent_id);
  const PickleNode* tuple = id == nullptr ? nullptr : graph.find(id->arguments, PickleKind::tuple);
  if (tuple == nullptr || tuple->items.size() < 5) return std::nullopt;
  const PickleNode* tag = graph.find(tuple->items[0], PickleKind::string);
  const PickleNode* key = graph.find(tuple->items[2], PickleKind::string);
  if (tag == nullptr || tag->text != "storage" || key == nullptr) return std::nullopt;
  if (key->text.size() > kMaxStorageKeyBytes) {
    return fail(ErrorKind::corrupt, fmt::format("the key of a storage has {} bytes, the limit is {} bytes",
                                                key->text.size(), kMaxStorageKeyBytes));
  }
  const std::optional<std::uint64_t> elements = unsigned_integer(graph, tuple->items[4]);
  if (!elements) {
    return fail(ErrorKind::corrupt, fmt::format("storage '{}' has no valid number of elements", key->text));
  }
  StorageId storage{.key = key->text, .type = type_of_storage(graph, node), .elements = *elements};
  if (const PickleNode* view = graph.find(argument_at(tuple, 5), PickleKind::tuple); view != nullptr) {
    const std::optional<std::uint64_t> offset = unsigned_integer(graph, argument_at(view, 1));
    if (!offset) return fail(ErrorKind::corrupt, fmt::format("a view of storage '{}' has no valid offset", key->text));
    storage.view_offset = *offset;
  }
  return storage;
}

std::optional<TensorCall> find_tensor_call(const PickleGraph& graph, NodeId node) {
  std::vector<NodeId> states;
  bool has_other_class = false;
  for (int wrappers = 0; wrappers < kMostWrappers; ++wrappers) {
    const PickleNode* found = graph.find(node, PickleKind::call);
    if (found == nullptr) return std::nullopt;
    if (found->state != kNoNode) states.push_back(found->state);
    std::string_view function = torch_function(graph, found->callable);
    const PickleNode* arguments = graph.find(found->arguments, PickleKind::tuple);
    if (function == "_rebuild_parameter" || function == "_rebuild_parameter_with_state") {
      if (function == "_rebuild_parameter_with_state") states.push_back(argument_at(arguments, 3));
      node = argument_at(arguments, 0);
      continue;
    }
    if (function == "_rebuild_from_type_v2") {
      // (function, class, arguments, state): the function is not called by a node of its own.
      states.push_back(argument_at(arguments, 3));
      const std::string_view type = torch_function(graph, argument_at(arguments, 1));
      has_other_class |= type != "Tensor" && type != "Parameter" && type != "Buffer";
      function = torch_function(graph, argument_at(arguments, 0));
      arguments = graph.find(argument_at(arguments, 2), PickleKind::tuple);
      if (function == "_rebuild_parameter" || function == "_rebuild_parameter_with_state") {
        node = argument_at(arguments, 0);
        continue;
      }
    }
    std::optional<TensorCall> call = read_tensor_call(graph, function, arguments);
    if (call) {
      call->states = std::move(states);
      call->has_other_class = has_other_class;
    }
    return call;
  }
  return std::nullopt;
}

Result<std::optional<TensorGeometry>> read_geometry(const PickleGraph& graph, const TensorCall& call,
                                                    const DecodeLimits& limits) {
  if (graph.find(call.offset, PickleKind::integer) == nullptr) return std::nullopt;
  const std::optional<std::uint64_t> offset = unsigned_integer(graph, call.offset);
  BITSNAP_ASSIGN(std::optional<std::vector<std::uint64_t>> shape, read_extents(graph, call.shape, limits));
  BITSNAP_ASSIGN(std::optional<std::vector<std::uint64_t>> stride, read_extents(graph, call.stride, limits));
  BITSNAP_ASSIGN(const std::optional<StorageId> storage, read_storage_id(graph, call.storage));
  if (!shape || !stride || !storage) return std::nullopt;
  if (!offset || shape->size() != stride->size()) {
    return fail(ErrorKind::corrupt,
                fmt::format("a tensor of storage '{}' has {} sizes and {} strides, or a negative offset", storage->key,
                            shape->size(), stride->size()));
  }
  const std::optional<std::uint64_t> sum = checked_add(*offset, storage->view_offset);
  if (!sum) return fail(ErrorKind::corrupt, "the offset of a tensor is too large");
  return TensorGeometry{.offset = *sum, .shape = std::move(*shape), .stride = std::move(*stride)};
}

ArgumentName argument_name(const PickleGraph& graph, std::string_view function, const PickleNode& arguments,
                           std::size_t index) {
  static constexpr std::array<std::string_view, 3> kCoordinates{"indices", "values", "size"};
  static constexpr std::array<std::string_view, 4> kCompressed{"compressed_indices", "plain_indices", "values", "size"};
  static constexpr std::array<std::string_view, 4> kNested{"buffer", "sizes", "strides", "storage_offsets"};
  if (function == "_rebuild_sparse_tensor" && index == 1) {
    // The first argument is a call with the name of the layout.
    const PickleNode* layout = graph.find(arguments.items[0], PickleKind::call);
    const PickleNode* names = layout == nullptr ? nullptr : graph.find(layout->arguments, PickleKind::tuple);
    const PickleNode* name = graph.find(argument_at(names, 0), PickleKind::string);
    if (name != nullptr && name->text != "torch.sparse_coo") return {.is_known = true, .parts = kCompressed};
    return {.is_known = true, .parts = kCoordinates};
  }
  if (function == "_rebuild_nested_tensor" && index < kNested.size()) {
    return {.is_known = true, .part = {.kind = NamePart::Kind::text, .text = kNested[index]}};
  }
  const bool is_parameter = function == "_rebuild_parameter" || function == "_rebuild_parameter_with_state";
  if (index == 0 && (is_parameter || function == "_rebuild_device_tensor_from_cpu_tensor")) return {.is_known = true};
  if (index == 3 && (function == "_rebuild_parameter_with_state" || function == "_rebuild_from_type_v2")) {
    return {.is_known = true, .is_state = true};
  }
  return {};
}

}  // namespace bitsnap::interop
