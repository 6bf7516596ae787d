// Writes a training state as a file of torch.save, or as a folder of torch.distributed.checkpoint.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/convert/tensor_stream.hpp"
#include "interop/dcp/dcp_metadata.hpp"
#include "interop/pickle/pickle_writer.hpp"
#include "interop/torch_tensors/torch_pickle.hpp"
#include "interop/torch_tensors/torch_type.hpp"
#include "interop/torch_zip/torch_zip.hpp"
#include "os/file_system.hpp"

namespace bitsnap::interop {
namespace {

// Writes values with their tensors as archives of torch.save.
class TorchArchives {
 public:
  TorchArchives(const State& state, TensorStream& tensors) : state_(state), tensors_(tensors) {}

  // Returns the size of the archive.
  Result<std::uint64_t> write(const Value& value, const ZipWriter::Sink& sink) {
    storages_.clear();
    numbers_.clear();
    PickleWriter pickle;
    BITSNAP_TRY(push_value(pickle, value, [this](PickleWriter& out, std::size_t tensor) { return push(out, tensor); }));
    std::vector<std::uint64_t> sizes;
    for (const std::size_t tensor : storages_) sizes.push_back(state_.tensors[tensor].info.size_bytes);
    const auto storage = [this](std::size_t i, const ZipWriter::Sink& to) {
      return tensors_.write(state_.tensors[storages_[i]], to);
    };
    return write_torch_zip(pickle.finish(), sizes, storage, sink);
  }

 private:
  Result<void> push(PickleWriter& out, std::size_t tensor) {
    const std::size_t holder = state_.tensors[tensor].info.alias_of.value_or(tensor);
    const auto [at, is_new] = numbers_.try_emplace(holder, storages_.size());
    if (is_new) storages_.push_back(holder);
    return push_tensor(out, state_.tensors[tensor].info, std::to_string(at->second));
  }

  const State& state_;
  TensorStream& tensors_;
  std::vector<std::size_t> storages_;  // the tensors of the archive
  std::map<std::size_t, std::size_t> numbers_;
};

// One dict of all tensors.
Value flat_tree(const State& state) {
  ValueDict dict;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    dict.entries.emplace_back(Value(state.tensors[i].info.name), Value(ValueTensor{i}));
  }
  return Value(std::move(dict));
}

// Divides a tree into the items of DCP, as its planner flattens a state: dicts, and lists that hold a tensor.
class DcpItems {
 public:
  struct Item {
    DcpKeys path;
    std::string name;
    const Value* value = nullptr;
  };

  Result<std::vector<Item>> run(const Value& tree) {
    if (dict_of(tree) == nullptr) {
      return fail(ErrorKind::unsupported, "DCP holds a state that is a dict, and nothing else");
    }
    BITSNAP_TRY(add(tree));
    return std::move(items_);
  }

 private:
  // torch goes through every mapping.
  static const ValueDict* dict_of(const Value& value) {
    if (const auto* dict = std::get_if<ValueDict>(&value.get())) return dict;
    const auto* typed = std::get_if<ValueTyped>(&value.get());
    if (typed == nullptr) return nullptr;
    const Value& content = typed->content.front();
    const auto* tuple = std::get_if<ValueTuple>(&content.get());
    if (typed->type == "collections.OrderedDict") {
      return std::get_if<ValueDict>(&(tuple == nullptr ? content : tuple->items.front()).get());
    }
    if (typed->type == "collections.Counter") return std::get_if<ValueDict>(&content.get());
    if (typed->type == "collections.defaultdict" && tuple != nullptr) {
      return std::get_if<ValueDict>(&tuple->items.back().get());
    }
    return nullptr;
  }

  // And through a list that holds a mapping or a tensor, at any depth of lists.
  static const ValueList* list_of(const Value& value) {
    const auto* list = std::get_if<ValueList>(&value.get());
    const bool has_parts = list != nullptr && std::ranges::any_of(*list, [](const Value& item) {
                             return std::holds_alternative<ValueTensor>(item.get()) || dict_of(item) != nullptr ||
                                    list_of(item) != nullptr;
                           });
    return has_parts ? list : nullptr;
  }

  // DCP makes strings of the keys of dicts.
  static std::optional<std::string> key_text(const Value& key) {
    if (const auto* text = std::get_if<std::string>(&key.get())) return *text;
    if (const auto* number = std::get_if<std::int64_t>(&key.get())) return std::to_string(*number);
    if (const auto* flag = std::get_if<bool>(&key.get())) return *flag ? "True" : "False";
    if (std::holds_alternative<std::monostate>(key.get())) return "None";
    return std::nullopt;
  }

  Result<void> add(const Value& value) {
    const ValueDict* dict = dict_of(value);
    const bool has_keys = dict != nullptr && std::ranges::all_of(dict->entries, [](const auto& entry) {
                            return key_text(entry.first).has_value();
                          });
    if (has_keys && (!dict->entries.empty() || path_.empty())) {
      for (const auto& [key, child] : dict->entries) BITSNAP_TRY(add_child(*key_text(key), *key_text(key), child));
      return {};
    }
    if (const ValueList* list = list_of(value)) {
      for (std::size_t i = 0; i < list->size(); ++i) {
        BITSNAP_TRY(add_child(static_cast<std::int64_t>(i), std::to_string(i), (*list)[i]));
      }
      return {};
    }
    if (!names_.try_emplace(name_, items_.size()).second) {
      return fail(ErrorKind::unsupported,
                  fmt::format("two values of the state would be items {} of DCP", quote_name(name_)));
    }
    items_.push_back({path_, name_, &value});
    return {};
  }

  Result<void> add_child(DcpKey key, const std::string& text, const Value& child) {
    const std::size_t above = name_.size();
    name_ += (path_.empty() ? "" : ".") + text;
    path_.push_back(std::move(key));
    BITSNAP_TRY(add(child));
    path_.pop_back();
    name_.resize(above);
    return {};
  }

  DcpKeys path_;
  std::string name_;
  std::vector<Item> items_;
  std::map<std::string, std::size_t> names_;
};

constexpr const char* kDcpFile = "__0_0.distcp";

}  // namespace

Result<std::uint64_t> write_torch_file(const State& state, TensorStream& tensors, const TensorStream::Sink& sink) {
  return TorchArchives(state, tensors).write(state.tree ? *state.tree : flat_tree(state), sink);
}

Result<std::uint64_t> write_dcp_folder(const State& state, TensorStream& tensors, const std::string& folder) {
  const Value tree = state.tree ? *state.tree : flat_tree(state);
  BITSNAP_ASSIGN(const std::vector<DcpItems::Item> items, DcpItems().run(tree));
  BITSNAP_ASSIGN(const auto file, os::real_file_system().create(folder + "/" + kDcpFile));
  TorchArchives archives(state, tensors);
  std::vector<WrittenDcpItem> written;
  for (const DcpItems::Item& item : items) {
    WrittenDcpItem& next = written.emplace_back();
    next.path = item.path;
    next.item.name = item.name;
    next.item.path = kDcpFile;
    next.item.offset = file->size_bytes();
    if (const auto* tensor = std::get_if<ValueTensor>(&item.value->get())) {
      const TensorInfo& info = state.tensors[tensor->index].info;
      next.item.is_tensor = true;
      next.dtype = torch_dtype_name(info.dtype_name);
      next.shape = info.shape;
    }
    auto bytes = archives.write(*item.value, [&file](ConstByteSpan piece) { return file->append(piece); });
    if (!bytes) return tl::unexpected(std::move(bytes).error().within(quote_name(item.name)));
    next.item.bytes = *bytes;
  }
  BITSNAP_TRY(file->close());
  const std::string metadata = write_dcp_metadata(written);
  BITSNAP_ASSIGN(const auto description, os::real_file_system().create(folder + "/.metadata"));
  BITSNAP_TRY(description->append(as_byte_span(metadata)));
  BITSNAP_TRY(description->close());
  return file->size_bytes() + metadata.size();
}

}  // namespace bitsnap::interop
