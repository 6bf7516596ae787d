#include "interop/state/state_parts.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>

#include "base/try.hpp"

namespace bitsnap::interop {
namespace {

ReadBytes reader_at(const FileBytes& bytes, std::uint64_t begin) {
  return [bytes, begin](std::uint64_t offset, ByteSpan out) { return bytes.read_at(begin + offset, out); };
}

// Calls `visit` with every value of the tree, a value before what it holds.
template <typename Tree, typename Visit>
void for_each_value(Tree& tree, const Visit& visit) {
  visit(tree);
  std::visit(
      [&](auto& value) {
        using T = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<T, ValueList>) {
          for (auto& item : value) for_each_value(item, visit);
        } else if constexpr (std::is_same_v<T, ValueTuple>) {
          for (auto& item : value.items) for_each_value(item, visit);
        } else if constexpr (std::is_same_v<T, ValueDict>) {
          for (auto& [key, item] : value.entries) for_each_value(item, visit);
        } else if constexpr (std::is_same_v<T, ValueTyped>) {
          for (auto& item : value.content) for_each_value(item, visit);
        }
      },
      tree.get());
}

Result<TensorInfo> torch_info(const TorchStateTensor& tensor, std::string name) {
  TensorInfo info;
  info.name = std::move(name);
  info.dtype = tensor.type.dtype;
  info.dtype_name = tensor.type.name;
  info.shape = tensor.shape;
  info.role = guess_role(info.name, info.dtype);
  BITSNAP_ASSIGN(const std::uint64_t elements, shape_size_bytes(DType::u8, info.shape));
  info.size_bytes = elements * tensor.type.bytes;
  return info;
}

}  // namespace

void renumber_tensors(Value& tree, const std::function<std::size_t(std::size_t)>& number) {
  for_each_value(tree, [&number](Value& value) {
    if (auto* tensor = std::get_if<ValueTensor>(&value.get())) tensor->index = number(tensor->index);
  });
}

bool has_other_values(const Value& tree) {
  const Value::Variant& held = tree.get();
  if (std::holds_alternative<ValueTensor>(held)) return false;
  if (const auto* list = std::get_if<ValueList>(&held)) return std::ranges::any_of(*list, has_other_values);
  if (const auto* tuple = std::get_if<ValueTuple>(&held)) return std::ranges::any_of(tuple->items, has_other_values);
  if (const auto* dict = std::get_if<ValueDict>(&held)) {
    return std::ranges::any_of(dict->entries, [](const auto& entry) { return has_other_values(entry.second); });
  }
  const auto* typed = std::get_if<ValueTyped>(&held);
  if (typed == nullptr || typed->type != "collections.OrderedDict") return true;
  // Its metadata are the versions of torch's modules.
  return std::ranges::any_of(typed->content, [](const Value& content) {
    const auto* with_metadata = std::get_if<ValueTuple>(&content.get());
    return with_metadata == nullptr ? has_other_values(content)
                                    : !with_metadata->items.empty() && has_other_values(with_metadata->items[0]);
  });
}

Result<Value> add_torch_state(TorchState state, const FileBytes& bytes, const std::string& prefix, StateParts& parts) {
  const std::size_t first = parts.tensors.size();
  // Tensors of the same memory, such as tied weights, are stored once.
  std::map<std::tuple<std::uint64_t, std::string_view, std::vector<std::uint64_t>, std::vector<std::uint64_t>>,
           std::size_t>
      known;
  for (TorchStateTensor& tensor : state.tensors) {
    TensorSource source;
    BITSNAP_ASSIGN(source.info, torch_info(tensor, prefix + tensor.name));
    const auto [same, is_new] =
        known.try_emplace({tensor.offset, tensor.type.name, tensor.shape, tensor.stride}, parts.tensors.size());
    if (!is_new && source.info.size_bytes > 0) source.info.alias_of = same->second;
    BITSNAP_ASSIGN(source.read, row_major(std::move(tensor.shape), std::move(tensor.stride), tensor.type.bytes,
                                          reader_at(bytes, tensor.offset), parts.strided));
    parts.tensors.push_back(std::move(source));
  }
  renumber_tensors(state.tree, [first](std::size_t index) { return first + index; });
  for (std::string& place : state.left_out) parts.left_out.push_back(prefix + place);
  return std::move(state.tree);
}

Result<StateParts> state_of_safetensors(const FileBytes& bytes, SafetensorsParts file, const DecodeLimits& limits) {
  StateParts parts;
  BITSNAP_ASSIGN(parts.tree, take_tree(file.header, limits));
  parts.metadata = std::move(file.header.metadata);
  std::uint64_t at = file.data_offset;
  for (TensorInfo& info : file.header.tensors) {
    TensorSource& source = parts.tensors.emplace_back();
    source.read = reader_at(bytes, at);
    at += info.size_bytes;
    source.info = std::move(info);
  }
  return parts;
}

Result<StateParts> state_of_arrays(const FileBytes& bytes, Contents contents, const DecodeLimits& /*limits*/) {
  StateParts parts;
  std::map<std::string_view, const TensorView*> views;  // arrays in Fortran order
  for (const TensorView& view : contents.views) views.emplace(view.name, &view);
  for (FoundTensor& found : contents.tensors) {
    TensorSource source;
    source.read = reader_at(bytes, found.offset);
    if (const auto view = views.find(found.info.name); view != views.end()) {
      found.info.shape = view->second->shape;
      BITSNAP_ASSIGN(source.read, row_major(view->second->shape, view->second->stride, view->second->element_bytes,
                                            std::move(source.read), parts.strided));
    }
    source.info = std::move(found.info);
    parts.tensors.push_back(std::move(source));
  }
  return parts;
}

Result<StateParts> state_of_torch(const FileBytes& bytes, TorchState state, const DecodeLimits& /*limits*/) {
  StateParts parts;
  BITSNAP_ASSIGN(parts.tree, add_torch_state(std::move(state), bytes, "", parts));
  return parts;
}

}  // namespace bitsnap::interop
