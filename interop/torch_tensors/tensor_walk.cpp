#include "interop/torch_tensors/tensor_walk.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "interop/container/scaled_limit.hpp"
#include "interop/torch_tensors/tensor_calls.hpp"

namespace bitsnap::interop {
namespace {

// A pickler writes at least 60 bytes for a tensor and 10 for a container, so the memory of the walk is a small multiple
// of the pickle. A hostile pickle may name one tensor a million times.
constexpr std::uint64_t kFreeWalkBytes = std::uint64_t{8} << 20U;
constexpr std::uint64_t kWalkBytesPerTextByte = 32;
constexpr std::uint64_t kBytesPerTensor = 512;
constexpr std::uint64_t kBytesPerDimension = 32;
constexpr std::uint64_t kBytesPerPlace = 64;

class TensorWalk {
 public:
  TensorWalk(const PickleGraph& graph, const PickleRole& role, UniqueNames& names, const DecodeLimits& limits)
      : graph_(graph),
        role_(role),
        names_(names),
        limits_(limits),
        tree_(graph),
        visited_(graph.nodes.size()),
        most_bytes_(scale_limit(kFreeWalkBytes + kWalkBytesPerTextByte * graph.bytes, limits)) {}

  Result<TorchObjects> run();

 private:
  using Place = NameTree::Place;

  // A value to visit. The state of an object names its attributes.
  struct Step {
    NodeId node = kNoNode;
    Place place = NameTree::kRoot;
    bool is_state = false;
    bool is_local = false;  // within a DTensor
  };

  Result<void> visit(const Step& step);
  void expand(const Step& step);
  void expand_pairs(const PickleNode& node, const Step& step);
  void expand_call(const PickleNode& node, Place place);
  bool expand_container_call(const PickleNode& node, Place place);
  void plan(NodeId node, Place parent, NamePart part, bool is_state = false, bool is_local = false);
  bool has_parts(NodeId node) const;

  Result<std::optional<std::size_t>> add_storage(NodeId node);
  Result<bool> add_tensor(NodeId node, Place place);
  Result<bool> add_rebuilt(const TensorCall& call, NodeId node, Place place);
  Result<void> charge(std::uint64_t bytes);

  const PickleGraph& graph_;
  const PickleRole& role_;
  UniqueNames& names_;
  const DecodeLimits& limits_;
  TorchObjects found_;
  NameTree tree_;
  std::vector<bool> visited_;
  std::vector<Step> pending_;  // the next one is the last
  std::vector<Step> planned_;  // of the value that is visited, in their order
  std::map<std::string_view, std::size_t> storages_;
  std::uint64_t bytes_ = 0;
  const std::uint64_t most_bytes_;
};

bool TensorWalk::has_parts(NodeId node) const {
  if (node >= graph_.nodes.size()) return false;
  switch (graph_.at(node).kind) {
    case PickleKind::list:
    case PickleKind::tuple:
    case PickleKind::set:
    case PickleKind::dict: return !graph_.at(node).items.empty() || graph_.at(node).state != kNoNode;
    case PickleKind::call:
    case PickleKind::persistent_id: return true;
    default: return false;
  }
}

void TensorWalk::plan(NodeId node, Place parent, NamePart part, bool is_state, bool is_local) {
  if (!has_parts(node)) return;
  bytes_ += kBytesPerPlace;
  if (bytes_ > most_bytes_) return;
  const Place place = part.kind == NamePart::Kind::nothing ? parent : tree_.add(parent, part);
  planned_.push_back({.node = node, .place = place, .is_state = is_state, .is_local = is_local});
}

NamePart index_part(std::size_t index) {
  return {.kind = NamePart::Kind::index, .value = static_cast<std::uint32_t>(index)};
}

constexpr std::string_view kLocalTensor = "_local_tensor";

// Attributes of torch's modules and of tensors over a mesh that only say what kind of thing is below them.
bool is_plumbing(std::string_view attribute) {
  return attribute == "_parameters" || attribute == "_buffers" || attribute == "_modules" || attribute == kLocalTensor;
}

void TensorWalk::expand_pairs(const PickleNode& node, const Step& step) {
  for (std::size_t i = 0; i + 1 < node.items.size(); i += 2) {
    NamePart part = tree_.part_of(node.items[i], i / 2);
    const std::string_view key = graph_.at(node.items[i]).text;
    if (step.is_state && is_plumbing(key)) part = {};
    plan(node.items[i + 1], step.place, part, false, step.is_state && key == kLocalTensor);
  }
}

// The containers of Python that are made from a list. False if the call makes something else.
bool TensorWalk::expand_container_call(const PickleNode& node, Place place) {
  const std::string_view function = python_function(graph_, node.callable);
  const PickleNode* arguments = graph_.find(node.arguments, PickleKind::tuple);
  if (arguments == nullptr || arguments->items.size() != 1) return false;
  if (function == "set" || function == "frozenset") {
    plan(arguments->items[0], place, {});
    return true;
  }
  // Python 2 makes an OrderedDict from a list of keys and values.
  const PickleNode* pairs = graph_.find(arguments->items[0], PickleKind::list);
  if (function != "OrderedDict" || pairs == nullptr) return false;
  for (std::size_t i = 0; i < pairs->items.size(); ++i) {
    const PickleNode& pair = graph_.at(pairs->items[i]);
    if ((pair.kind != PickleKind::list && pair.kind != PickleKind::tuple) || pair.items.size() != 2) continue;
    plan(pair.items[1], place, tree_.part_of(pair.items[0], i));
  }
  return true;
}

void TensorWalk::expand_call(const PickleNode& node, Place place) {
  if (expand_container_call(node, place)) return;
  const std::string_view function = torch_function(graph_, node.callable);
  const PickleNode* arguments = graph_.find(node.arguments, PickleKind::tuple);
  if (arguments == nullptr) return;
  for (std::size_t i = 0; i < arguments->items.size(); ++i) {
    const ArgumentName found = argument_name(graph_, function, *arguments, i);
    const PickleNode* parts = graph_.find(arguments->items[i], PickleKind::tuple);
    if (found.parts.empty() || parts == nullptr) {
      plan(arguments->items[i], place, found.is_known ? found.part : index_part(i), found.is_state);
      continue;
    }
    for (std::size_t k = 0; k < parts->items.size(); ++k) {
      plan(parts->items[k], place,
           k < found.parts.size() ? NamePart{.kind = NamePart::Kind::text, .text = found.parts[k]} : index_part(k));
    }
  }
}

void TensorWalk::expand(const Step& step) {
  const PickleNode& node = graph_.at(step.node);
  if (node.kind == PickleKind::dict || node.has_pairs) {
    expand_pairs(node, step);
  } else {
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      plan(node.items[i], step.place, step.is_state ? NamePart() : index_part(i), step.is_state);
    }
  }
  if (node.kind == PickleKind::call) expand_call(node, step.place);
  if (node.state != kNoNode) plan(node.state, step.place, {}, true);
}

Result<void> TensorWalk::charge(std::uint64_t bytes) {
  bytes_ += bytes;
  if (bytes_ <= most_bytes_) return {};
  return fail(ErrorKind::resource_exhausted,
              fmt::format("the tensors of a pickle of {} bytes take more than {} bytes", graph_.bytes, most_bytes_));
}

// nullopt if the persistent id is not that of a storage.
Result<std::optional<std::size_t>> TensorWalk::add_storage(NodeId node) {
  BITSNAP_ASSIGN(const std::optional<StorageId> id, read_storage_id(graph_, node));
  if (!id) return std::nullopt;
  const auto [at, is_new] = storages_.try_emplace(id->key, found_.storages.size());
  if (is_new) found_.storages.push_back({.key = id->key, .type = id->type, .elements = id->elements});
  return at->second;
}

Result<bool> TensorWalk::add_rebuilt(const TensorCall& call, NodeId node, Place place) {
  BITSNAP_ASSIGN(const std::optional<std::size_t> storage, add_storage(call.storage));
  if (!storage) return false;
  BITSNAP_ASSIGN(std::optional<TensorGeometry> geometry, read_geometry(graph_, call, limits_));
  if (!geometry) return false;
  if (found_.tensors.size() >= limits_.tensors) {
    return fail(ErrorKind::resource_exhausted, fmt::format("more than {} tensors", limits_.tensors));
  }
  std::optional<std::string> name = tree_.name(place);
  if (!name) name = storage_name(found_, *storage);
  if (name->empty() && place == NameTree::kRoot) name = kRootTensorName;
  BITSNAP_TRY(charge(kBytesPerTensor + 2 * name->size() + kBytesPerDimension * geometry->shape.size()));
  found_.tensors.push_back({.name = names_.add(std::move(*name)),
                            .storage = *storage,
                            .type = call.type,
                            .offset = geometry->offset,
                            .shape = std::move(geometry->shape),
                            .stride = std::move(geometry->stride),
                            .node = node});
  return true;
}

// A tensor is named at each place where it is; other values are visited once. False if the value is no tensor.
Result<bool> TensorWalk::add_tensor(NodeId node, Place place) {
  const std::optional<TensorCall> call = find_tensor_call(graph_, node);
  if (!call) return false;
  BITSNAP_ASSIGN(const bool added, add_rebuilt(*call, node, place));
  if (!added) return false;
  if (visited_[node]) return true;
  visited_[node] = true;
  // What the tensor has besides its elements.
  const auto plan_text = [&](NodeId part, std::string_view text) {
    plan(part, place, {.kind = NamePart::Kind::text, .text = text});
  };
  plan_text(call->scales, "scales");
  plan_text(call->zero_points, "zero_points");
  for (const NodeId state : call->states) plan(state, place, {}, true);
  return true;
}

Result<void> TensorWalk::visit(const Step& step) {
  const PickleNode& node = graph_.at(step.node);
  if (node.kind == PickleKind::call) {
    BITSNAP_ASSIGN(const bool is_tensor, add_tensor(step.node, step.place));
    if (is_tensor && step.is_local) found_.tensors.back().is_local = true;
    if (is_tensor) return {};
  }
  if (visited_[step.node]) return {};
  visited_[step.node] = true;
  if (node.kind == PickleKind::persistent_id) BITSNAP_TRY(add_storage(step.node));
  expand(step);
  return {};
}

Result<TorchObjects> TensorWalk::run() {
  found_.folder = role_.folder;
  found_.keys_are_addresses = role_.keys_are_addresses;
  NamePart root;
  if (!role_.root.empty()) root = {.kind = NamePart::Kind::text, .text = role_.root};
  plan(graph_.root, NameTree::kRoot, root);
  for (;;) {
    for (; !planned_.empty(); planned_.pop_back()) pending_.push_back(planned_.back());
    if (pending_.empty()) return std::move(found_);
    const Step step = pending_.back();
    pending_.pop_back();
    BITSNAP_TRY(visit(step));
    BITSNAP_TRY(charge(0));
  }
}

}  // namespace

std::string storage_name(const TorchObjects& objects, std::size_t storage) {
  const std::string folder(objects.folder);
  return folder +
         (objects.keys_are_addresses ? std::to_string(storage) : escape_invalid_utf8(objects.storages[storage].key));
}

Result<TorchObjects> find_torch_objects(const PickleGraph& graph, const PickleRole& role, UniqueNames& names,
                                        const DecodeLimits& limits) {
  return TensorWalk(graph, role, names, limits).run();
}

}  // namespace bitsnap::interop
