#include "interop/dcp/dcp_metadata.hpp"

#include <map>

#include <fmt/format.h>

#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/pickle/pickle_reader.hpp"
#include "interop/pickle/pickle_writer.hpp"
#include "interop/torch_tensors/tensor_calls.hpp"
#include "interop/torch_tensors/tensor_names.hpp"
#include "interop/torch_tensors/torch_pickle.hpp"

namespace bitsnap::interop {
namespace {

constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata";
constexpr std::string_view kVersion = "1.0.0";

class DcpMetadataWriter {
 public:
  std::string run(const std::vector<WrittenDcpItem>& items) {
    begin_object(kModule, "Metadata");
    out_.string("state_dict_metadata");
    begin_dict();
    for (const WrittenDcpItem& written : items) {
      out_.string(written.item.name);
      if (written.item.is_tensor) {
        tensor(written);
      } else {
        out_.global(kModule, "BytesStorageMetadata");
        out_.empty_tuple();
        out_.make();
      }
    }
    out_.set_all();
    out_.string("planner_data");
    begin_dict();
    for (const WrittenDcpItem& written : items) {
      out_.string(written.item.name);
      path(written.path);
    }
    out_.set_all();
    out_.string("storage_data");
    begin_dict();
    for (const WrittenDcpItem& written : items) place(written);
    out_.set_all();
    out_.string("version");
    out_.string(kVersion);
    end_object();
    return out_.finish();
  }

 private:
  // An object with its attributes as a dict.
  void begin_object(std::string_view module, std::string_view name) {
    out_.global(module, name);
    out_.empty_tuple();
    out_.make();
    begin_dict();
  }
  void end_object() {
    out_.set_all();
    out_.build();
  }
  void begin_dict() {
    out_.empty_dict();
    out_.mark();
  }

  void tensor(const WrittenDcpItem& written) {
    begin_object(kModule, "TensorStorageMetadata");
    out_.string("properties");
    properties(written.dtype);
    out_.string("size");
    push_size(out_, written.shape);
    out_.string("chunks");
    out_.empty_list();
    out_.mark();
    begin_object(kModule, "ChunkStorageMetadata");
    out_.string("offsets");
    push_size(out_, std::vector<std::uint64_t>(written.shape.size()));
    out_.string("sizes");
    push_size(out_, written.shape);
    end_object();
    out_.append_all();
    end_object();
  }

  // dtype, layout, requires_grad, memory format, pin_memory
  void properties(std::string_view dtype) {
    out_.global(kModule, "TensorProperties");
    out_.empty_tuple();
    out_.make();
    out_.mark();
    out_.global("torch", dtype);
    out_.call("torch.serialization", "_get_layout", [this] { out_.string("torch.strided"); });
    out_.boolean(false);
    out_.call(kModule, "_MEM_FORMAT_ENCODING", [this] { out_.integer(0); });
    out_.boolean(false);
    out_.tuple();
    out_.build();
  }

  void path(const DcpKeys& keys) {
    out_.mark();
    for (const DcpKey& key : keys) {
      if (const auto* name = std::get_if<std::string>(&key)) {
        out_.string(*name);
      } else {
        out_.integer(std::get<std::int64_t>(key));
      }
    }
    out_.tuple();
  }

  // The index of an item, and where its bytes are.
  void place(const WrittenDcpItem& written) {
    begin_object(kModule, "MetadataIndex");
    out_.string("fqn");
    out_.string(written.item.name);
    out_.string("index");
    if (written.item.is_tensor) {
      out_.integer(0);
      out_.string("offset");
      push_size(out_, std::vector<std::uint64_t>(written.shape.size()));
    } else {
      out_.none();
    }
    end_object();
    begin_object("torch.distributed.checkpoint.filesystem", "_StorageInfo");
    out_.string("relative_path");
    out_.string(written.item.path);
    out_.string("offset");
    out_.integer(static_cast<std::int64_t>(written.item.offset));
    out_.string("length");
    out_.integer(static_cast<std::int64_t>(written.item.bytes));
    end_object();
  }

  PickleWriter out_;
};

}  // namespace

std::string write_dcp_metadata(const std::vector<WrittenDcpItem>& items) { return DcpMetadataWriter().run(items); }

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
