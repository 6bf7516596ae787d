// Puts the tensors of a DCP checkpoint together from the boxes in its files, and nests its items as they were in the
// state that was saved.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/dcp/dcp_item.hpp"
#include "interop/dcp/dcp_metadata.hpp"
#include "interop/dcp/distcp.hpp"
#include "interop/state/state_parts.hpp"
#include "interop/torch_zip/torch_zip.hpp"

namespace bitsnap::interop {
namespace {

// Values by paths of keys, as in a state of dicts and lists.
class NestedValues {
 public:
  // False if the path leads through a value, or to one that is there.
  bool add(const DcpKeys& path, Value value) {
    Node* node = &root_;
    for (const DcpKey& key : path) {
      if (node->value) return false;
      const auto [found, is_new] = node->places.try_emplace(key, node->children.size());
      if (is_new) node->children.emplace_back(key, std::make_unique<Node>());
      node = node->children[found->second].second.get();
    }
    if (node->value || !node->children.empty()) return false;
    node->value = std::move(value);
    return true;
  }

  Value take() { return take(root_); }

 private:
  struct Node {
    std::optional<Value> value;
    std::vector<std::pair<DcpKey, std::unique_ptr<Node>>> children;  // in the order of the checkpoint
    std::map<DcpKey, std::size_t> places;
  };

  static Value take(Node& node) {
    if (node.value) return *std::move(node.value);
    // The keys of lists are numbers, those of dicts are strings.
    if (!node.places.empty() && std::holds_alternative<std::int64_t>(node.places.begin()->first)) {
      if (auto list = take_list(node)) return *std::move(list);
    }
    ValueDict dict;
    for (auto& [key, child] : node.children) {
      dict.entries.emplace_back(std::visit([](const auto& k) { return Value(k); }, key), take(*child));
    }
    return Value(std::move(dict));
  }

  static std::optional<Value> take_list(Node& node) {
    std::int64_t next = 0;
    for (const auto& [key, place] : node.places) {
      const auto* index = std::get_if<std::int64_t>(&key);
      if (index == nullptr || *index != next++) return std::nullopt;
    }
    ValueList list;
    for (const auto& [key, place] : node.places) list.push_back(take(*node.children[place].second));
    return Value(std::move(list));
  }

  Node root_;
};

class DcpReader {
 public:
  DcpReader(const std::vector<CheckpointFile>& files, std::string directory, const DecodeLimits& limits)
      : directory_(std::move(directory)), limits_(limits) {
    for (const CheckpointFile& file : files) files_.emplace(file.path, &file);
  }

  Result<StateParts> run(std::string_view metadata) {
    BITSNAP_ASSIGN(const std::vector<DcpItem> items, read_dcp_metadata(metadata, limits_));
    BITSNAP_ASSIGN(const DcpPaths paths, read_dcp_paths(metadata, limits_));
    // Items that share bytes would be written many times.
    BITSNAP_TRY(sort_items(items));
    for (const DcpItem& item : items) {
      BITSNAP_ASSIGN(const FileBytes bytes, bytes_of(item));
      Result<void> read = item.is_tensor ? read_tensor(item, bytes) : read_object(item, bytes);
      if (!read) return tl::unexpected(explain(item, std::move(read).error()));
    }
    BITSNAP_ASSIGN(std::vector<TensorSource> tensors, tensors_.take());
    for (TensorSource& tensor : tensors) {
      values_.emplace_back(tensor.info.name, Value(ValueTensor{parts_.tensors.size()}));
      parts_.tensors.push_back(std::move(tensor));
    }
    BITSNAP_ASSIGN(parts_.tree, nest(paths));
    return std::move(parts_);
  }

 private:
  Result<FileBytes> bytes_of(const DcpItem& item) const {
    const std::string path = directory_ + item.path;
    const auto file = files_.find(path);
    if (file == files_.end()) {
      return fail(ErrorKind::not_found,
                  fmt::format("item {}: there is no file {}", quote_name(item.name), quote_name(path)));
    }
    return file->second->bytes.part(item.offset, item.bytes);
  }

  static Error explain(const DcpItem& item, Error error) {
    if (error.kind() != ErrorKind::unsupported) return std::move(error).within(quote_name(item.name));
    return {ErrorKind::unsupported,
            fmt::format("item {} is compressed, or of another format than torch.save", quote_name(item.name))};
  }

  Result<void> read_tensor(const DcpItem& item, const FileBytes& bytes) {
    StateParts one;
    one.strided = parts_.strided;
    BITSNAP_ASSIGN(TorchState state, read_torch_zip_state(bytes, limits_));
    BITSNAP_ASSIGN(const Value tree, add_torch_state(std::move(state), bytes, "", one));
    const auto* tensor = std::get_if<ValueTensor>(&tree.get());
    if (tensor == nullptr) return fail(ErrorKind::corrupt, "it is no tensor, although the metadata says so");
    TensorSource& part = one.tensors[tensor->index];
    part.info.shard = item.box;
    part.info.role = guess_role(item.name, part.info.dtype);
    return tensors_.add(item.name, std::move(part));
  }

  Result<void> read_object(const DcpItem& item, const FileBytes& bytes) {
    BITSNAP_ASSIGN(TorchState state, read_torch_zip_state(bytes, limits_));
    BITSNAP_ASSIGN(Value value, add_torch_state(std::move(state), bytes, item.name + ".", parts_));
    values_.emplace_back(item.name, std::move(value));
    return {};
  }

  // Without paths, or if they contradict each other, all items lie in one dict.
  Result<Value> nest(const DcpPaths& paths) {
    std::map<std::string_view, const Value*> named;
    for (const auto& [name, value] : values_) named.emplace(name, &value);
    NestedValues nested;
    bool is_nested = true;
    for (const auto& [name, keys] : paths) {
      const auto found = named.find(name);
      if (found == named.end()) return fail(ErrorKind::corrupt, fmt::format("no file holds item {}", quote_name(name)));
      is_nested =
          is_nested && !keys.empty() && keys.size() + 1 < limits_.tree_depth && nested.add(keys, *found->second);
      named.erase(found);
    }
    return is_nested && named.empty() ? nested.take() : flat();
  }

  Value flat() {
    ValueDict dict;
    for (auto& [name, value] : values_) dict.entries.emplace_back(Value(name), std::move(value));
    return Value(std::move(dict));
  }

  std::map<std::string_view, const CheckpointFile*> files_;  // by path
  const std::string directory_;                              // with its '/'
  const DecodeLimits& limits_;
  StateParts parts_;
  PartedTensors tensors_;
  std::vector<std::pair<std::string, Value>> values_;
};

}  // namespace

Result<StateParts> read_dcp_parts(const CheckpointFile& metadata, const std::vector<CheckpointFile>& files,
                                  const DecodeLimits& limits) {
  const std::string directory = metadata.path.substr(0, metadata.path.size() - kDcpMetadata.size());
  const auto read = [&]() -> Result<StateParts> {
    if (metadata.bytes.size() > limits.index_bytes) {
      return fail(ErrorKind::resource_exhausted, fmt::format("it has more than {} bytes", limits.index_bytes));
    }
    BITSNAP_ASSIGN(const std::string text, metadata.bytes.read_text(0, metadata.bytes.size()));
    return DcpReader(files, directory, limits).run(text);
  };
  Result<StateParts> parts = read();
  if (!parts) return tl::unexpected(std::move(parts).error().within(quote_name(metadata.path)));
  parts->label = directory.substr(0, directory.empty() ? 0 : directory.size() - 1);
  for (const CheckpointFile& file : files) {
    if (file.path.starts_with(directory)) parts->file_bytes += file.bytes.size();
  }
  return parts;
}

}  // namespace bitsnap::interop
