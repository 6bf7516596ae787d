#include "interop/dcp/dcp_metadata.hpp"

#include <map>

#include <fmt/format.h>

#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/pickle/pickle_reader.hpp"
#include "interop/torch_tensors/tensor_calls.hpp"
#include "interop/torch_tensors/tensor_names.hpp"

namespace bitsnap::interop {
namespace {

// The objects of the metadata have fewer attributes. Looking one up takes linear time, and a hostile pickle may share
// one large dict among all objects.
constexpr std::size_t kMostAttributes = 64;
constexpr std::size_t kMaxPathBytes = 4096;

class DcpMetadataReader {
 public:
  DcpMetadataReader(const PickleGraph& graph, const DecodeLimits& limits) : graph_(graph), limits_(limits) {}

  Result<std::vector<DcpItem>> run();
  Result<DcpPaths> read_paths();

 private:
  NodeId attribute(NodeId object, std::string_view name) const;
  Result<std::string_view> text_of(NodeId node, std::string_view what, std::size_t most) const;
  Result<std::uint64_t> size_of(NodeId node, std::string_view what) const;
  Result<DcpItem> read_item(NodeId index, NodeId storage);
  Result<void> read_box(NodeId index, NodeId global_shape, DcpItem& item);
  void read_shapes(NodeId dict);
  Result<std::optional<DcpKeys>> read_keys(NodeId node);
  Result<void> charge(std::uint64_t bytes);

  const PickleGraph& graph_;
  const DecodeLimits& limits_;
  std::map<std::string_view, NodeId> shapes_;  // of global tensors, by name
  std::uint64_t bytes_ = 0;
};

NodeId DcpMetadataReader::attribute(NodeId object, std::string_view name) const {
  const PickleNode* call = graph_.find(object, PickleKind::call);
  const PickleNode* state = call == nullptr ? nullptr : graph_.find(call->state, PickleKind::dict);
  if (state == nullptr || state->items.size() > 2 * kMostAttributes) return kNoNode;
  return graph_.lookup(call->state, name);
}

Result<std::string_view> DcpMetadataReader::text_of(NodeId node, std::string_view what, std::size_t most) const {
  const PickleNode* text = graph_.find(node, PickleKind::string);
  if (text == nullptr) return fail(ErrorKind::corrupt, fmt::format("the metadata of an item has no {}", what));
  if (text->text.size() > most) {
    return fail(ErrorKind::corrupt,
                fmt::format("the {} of an item has {} bytes, the limit is {} bytes", what, text->text.size(), most));
  }
  return text->text;
}

Result<std::uint64_t> DcpMetadataReader::size_of(NodeId node, std::string_view what) const {
  const PickleNode* number = graph_.find(node, PickleKind::integer);
  if (number == nullptr || number->integer < 0) {
    return fail(ErrorKind::corrupt, fmt::format("the metadata of an item has no valid {}", what));
  }
  return static_cast<std::uint64_t>(number->integer);
}

Result<void> DcpMetadataReader::charge(std::uint64_t bytes) {
  bytes_ += bytes;
  if (bytes_ <= limits_.index_bytes) return {};
  return fail(ErrorKind::resource_exhausted,
              fmt::format("the items of the checkpoint take more than {} bytes", limits_.index_bytes));
}

Result<void> DcpMetadataReader::read_box(NodeId index, NodeId global_shape, DcpItem& item) {
  BITSNAP_ASSIGN(auto shape, read_extents(graph_, global_shape, limits_));
  BITSNAP_ASSIGN(auto offset, read_extents(graph_, attribute(index, "offset"), limits_));
  if (!shape || !offset) return {};
  if (shape->size() != offset->size()) {
    return fail(ErrorKind::corrupt, fmt::format("item {} has {} offsets in {} dimensions", quote_name(item.name),
                                                offset->size(), shape->size()));
  }
  BITSNAP_TRY(charge(16 * shape->size()));
  item.box = ShardBox{.global_shape = std::move(*shape), .offset = std::move(*offset)};
  return {};
}

Result<DcpItem> DcpMetadataReader::read_item(NodeId index, NodeId storage) {
  DcpItem item;
  BITSNAP_ASSIGN(const std::string_view name, text_of(attribute(index, "fqn"), "name", kMaxTensorNameBytes));
  BITSNAP_ASSIGN(const std::string_view path, text_of(attribute(storage, "relative_path"), "path", kMaxPathBytes));
  BITSNAP_TRY(charge(sizeof(DcpItem) + name.size() + path.size()));
  item.name = escape_invalid_utf8(name);
  item.path = path;
  BITSNAP_ASSIGN(item.offset, size_of(attribute(storage, "offset"), "offset"));
  BITSNAP_ASSIGN(item.bytes, size_of(attribute(storage, "length"), "length"));
  if (const auto found = shapes_.find(name); found != shapes_.end()) {
    item.is_tensor = true;
    BITSNAP_TRY(read_box(index, found->second, item));
  }
  return item;
}

void DcpMetadataReader::read_shapes(NodeId dict) {
  const PickleNode* names = graph_.find(dict, PickleKind::dict);
  if (names == nullptr) return;
  for (std::size_t i = 0; i + 1 < names->items.size(); i += 2) {
    const PickleNode* name = graph_.find(names->items[i], PickleKind::string);
    if (name == nullptr || name->text.size() > kMaxTensorNameBytes) continue;
    if (const NodeId shape = attribute(names->items[i + 1], "size"); shape != kNoNode) shapes_[name->text] = shape;
  }
}

Result<std::vector<DcpItem>> DcpMetadataReader::run() {
  read_shapes(attribute(graph_.root, "state_dict_metadata"));
  const PickleNode* storages = graph_.find(attribute(graph_.root, "storage_data"), PickleKind::dict);
  if (storages == nullptr) return fail(ErrorKind::corrupt, "the pickle is no metadata of a checkpoint");
  std::vector<DcpItem> items;
  for (std::size_t i = 0; i + 1 < storages->items.size(); i += 2) {
    if (items.size() >= limits_.tensors) {
      return fail(ErrorKind::resource_exhausted, fmt::format("more than {} items", limits_.tensors));
    }
    BITSNAP_ASSIGN(DcpItem item, read_item(storages->items[i], storages->items[i + 1]));
    items.push_back(std::move(item));
  }
  return items;
}

// nullopt unless all of them are strings and integers.
Result<std::optional<DcpKeys>> DcpMetadataReader::read_keys(NodeId node) {
  const PickleNode* tuple = graph_.find(node, PickleKind::tuple);
  if (tuple == nullptr) return std::nullopt;
  DcpKeys keys;
  for (const NodeId item : tuple->items) {
    const PickleNode& key = graph_.at(item);
    BITSNAP_TRY(charge(sizeof(DcpKey) + key.text.size()));
    if (key.kind == PickleKind::integer) {
      keys.emplace_back(key.integer);
    } else if (key.kind == PickleKind::string) {
      keys.emplace_back(escape_invalid_utf8(key.text));
    } else {
      return std::nullopt;
    }
  }
  return keys;
}

// The planner's data are a dict from the name of an item to a tuple of keys.
Result<DcpPaths> DcpMetadataReader::read_paths() {
  std::map<std::string_view, NodeId> planned;
  if (const PickleNode* named = graph_.find(attribute(graph_.root, "planner_data"), PickleKind::dict)) {
    for (std::size_t i = 0; i + 1 < named->items.size(); i += 2) {
      const PickleNode* name = graph_.find(named->items[i], PickleKind::string);
      if (name != nullptr) planned.emplace(name->text, named->items[i + 1]);
    }
  }
  DcpPaths paths;
  const PickleNode* items = graph_.find(attribute(graph_.root, "state_dict_metadata"), PickleKind::dict);
  if (items == nullptr) return fail(ErrorKind::corrupt, "the pickle is no metadata of a checkpoint");
  for (std::size_t i = 0; i + 1 < items->items.size(); i += 2) {
    BITSNAP_ASSIGN(const std::string_view name, text_of(items->items[i], "name", kMaxTensorNameBytes));
    BITSNAP_TRY(charge(sizeof(DcpPaths::value_type) + name.size()));
    const auto found = planned.find(name);
    std::optional<DcpKeys> keys;
    if (found != planned.end()) {
      BITSNAP_ASSIGN(keys, read_keys(found->second));
    }
    paths.emplace_back(escape_invalid_utf8(name), std::move(keys).value_or(DcpKeys()));
  }
  return paths;
}

}  // namespace

Result<std::vector<DcpItem>> read_dcp_metadata(std::string_view text, const DecodeLimits& limits) {
  BITSNAP_ASSIGN(const PickleGraph graph, read_pickle(text, limits));
  return DcpMetadataReader(graph, limits).run();
}

Result<DcpPaths> read_dcp_paths(std::string_view text, const DecodeLimits& limits) {
  BITSNAP_ASSIGN(const PickleGraph graph, read_pickle(text, limits));
  return DcpMetadataReader(graph, limits).read_paths();
}

}  // namespace bitsnap::interop
