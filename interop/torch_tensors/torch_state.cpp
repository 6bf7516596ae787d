#include "interop/torch_tensors/torch_state.hpp"

#include <algorithm>
#include <bit>
#include <complex>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "base/utf8.hpp"
#include "interop/container/scaled_limit.hpp"
#include "interop/container/strided_span.hpp"
#include "interop/torch_tensors/tensor_calls.hpp"

namespace bitsnap::interop {
namespace {

// A file may have millions of values that are left out; the first ones say enough.
constexpr std::size_t kMostLeftOut = 64;
constexpr std::size_t kLeftOut = SIZE_MAX;  // in place of the index of a tensor
constexpr std::size_t kMostPlaceBytes = 256;
// A pickle may name one list, or one element of a storage, many times: what that takes is bounded by the file.
constexpr std::uint64_t kFreeValues = 65'536;
constexpr std::uint64_t kFreeTextBytes = std::uint64_t{1} << 20U;
constexpr std::uint64_t kTextBytesPerByte = 4;
constexpr std::uint64_t kFreeTensorBytes = std::uint64_t{64} << 20U;
constexpr std::uint64_t kTensorBytesPerByte = 64;

// Turns the values of a pickle into a typed tree.
class TreeReader {
 public:
  // `tensors`: the indices in the state of the calls that make tensors, or kLeftOut.
  TreeReader(const PickleGraph& graph, const std::map<NodeId, std::size_t>& tensors, const DecodeLimits& limits)
      : graph_(graph),
        limits_(limits),
        most_values_(std::min(limits.tree_nodes, scale_limit(kFreeValues + graph.bytes, limits))),
        most_text_bytes_(scale_limit(kFreeTextBytes + kTextBytesPerByte * graph.bytes, limits)),
        tensors_(tensors) {}

  Result<Value> run() {
    BITSNAP_ASSIGN(std::optional<Value> tree, read(graph_.root));
    return std::move(tree).value_or(Value(ValueDict()));
  }

  std::vector<std::string> take_left_out() { return std::move(left_out_); }

 private:
  // nullopt: the value is left out.
  using MaybeValue = Result<std::optional<Value>>;

  MaybeValue read(NodeId node);
  MaybeValue read_node(NodeId node);
  MaybeValue read_big_integer(const PickleNode& node);
  MaybeValue read_real(const PickleNode& node);
  MaybeValue read_global(const PickleNode& node);
  MaybeValue read_call(NodeId node);
  MaybeValue read_python_call(std::string_view function, const PickleNode& call);
  MaybeValue read_ordered_dict(const PickleNode& call);
  MaybeValue read_set(std::string_view function, const PickleNode& call);
  MaybeValue read_bytes(const PickleNode& call);
  MaybeValue read_device(const PickleNode& call);

  Result<ValueList> read_items(const std::vector<NodeId>& items);
  Result<ValueDict> read_pairs(const std::vector<NodeId>& items);
  Result<ValueDict> read_list_of_pairs(const std::vector<NodeId>& items);
  std::optional<Value> leave_out();

  [[nodiscard]] NodeId argument(const PickleNode& call, std::size_t index) const {
    const PickleNode* arguments = graph_.find(call.arguments, PickleKind::tuple);
    return arguments != nullptr && index < arguments->items.size() ? arguments->items[index] : kNoNode;
  }
  [[nodiscard]] std::string_view text_of(NodeId node) const {
    const PickleNode* text = graph_.find(node, PickleKind::string);
    return text == nullptr ? std::string_view() : text->text;
  }
  // "collections", "OrderedDict"
  [[nodiscard]] std::pair<std::string_view, std::string_view> name_of(const PickleNode& global) const {
    return {text_of(global.items[0]), text_of(global.items[1])};
  }

  const PickleGraph& graph_;
  const DecodeLimits& limits_;
  const std::uint64_t most_values_;
  const std::uint64_t most_text_bytes_;
  const std::map<NodeId, std::size_t>& tensors_;
  std::vector<std::string> place_;  // keys from the root to the value that is read
  std::vector<std::string> left_out_;
  std::uint64_t values_ = 0;
  std::uint64_t text_bytes_ = 0;
};

std::optional<Value> TreeReader::leave_out() {
  if (left_out_.size() < kMostLeftOut) {
    std::string place = escape_invalid_utf8(fmt::format("{}", fmt::join(place_, ".")));
    if (place.size() > kMostPlaceBytes) place.resize(kMostPlaceBytes);
    left_out_.push_back(place.empty() ? "the whole object" : std::move(place));
  }
  return std::nullopt;
}

// Whether the state of an object has attributes.
bool holds_something(const PickleGraph& graph, NodeId state) {
  if (state >= graph.nodes.size()) return false;
  const PickleNode& node = graph.at(state);
  switch (node.kind) {
    case PickleKind::none: return false;
    case PickleKind::tuple:
      return std::ranges::any_of(node.items, [&](NodeId item) {
        return graph.find(item, PickleKind::tuple) == nullptr && holds_something(graph, item);
      });
    case PickleKind::dict:
    case PickleKind::call: return !node.items.empty();
    default: return true;
  }
}

// What a tensor is besides the elements in its storage; empty: nothing.
std::string_view peculiarity(const PickleGraph& graph, const TorchTensor& tensor) {
  if (tensor.is_local) return "a shard of a DTensor";
  const std::optional<TensorCall> call = find_tensor_call(graph, tensor.node);
  if (!call) return {};
  if (call->scales != kNoNode || call->type.name.starts_with('Q')) return "a quantized tensor";
  if (call->metadata == kNoNode || graph.find(call->metadata, PickleKind::dict) == nullptr) return {};
  const auto is_set = [&](std::string_view flag) {
    const PickleNode* value = graph.find(graph.lookup(call->metadata, flag), PickleKind::boolean);
    return value != nullptr && value->integer != 0;
  };
  if (is_set("conj")) return "a conjugate view";
  return is_set("neg") ? "a negative view" : std::string_view();
}

Value typed(std::string_view type, Value content) {
  ValueTyped value{std::string(type), {}};
  value.content.push_back(std::move(content));
  return Value(std::move(value));
}

TreeReader::MaybeValue TreeReader::read(NodeId node) {
  if (++values_ > most_values_) {
    return fail(ErrorKind::resource_exhausted, fmt::format("the pickle holds more than {} values", most_values_));
  }
  if (node < graph_.nodes.size()) text_bytes_ += graph_.at(node).text.size();
  if (text_bytes_ > most_text_bytes_) {
    return fail(ErrorKind::resource_exhausted,
                fmt::format("the texts of the pickle take more than {} bytes", most_text_bytes_));
  }
  // A list may hold itself.
  if (node >= graph_.nodes.size() || place_.size() + 2 >= limits_.tree_depth) return leave_out();
  return read_node(node);
}

TreeReader::MaybeValue TreeReader::read_node(NodeId id) {
  const PickleNode& node = graph_.at(id);
  switch (node.kind) {
    case PickleKind::none: return Value();
    case PickleKind::boolean: return Value(node.integer != 0);
    case PickleKind::integer: return Value(node.integer);
    case PickleKind::big_integer: return read_big_integer(node);
    case PickleKind::real: return read_real(node);
    case PickleKind::string:
      // Protocol 0 keeps escapes in a string; nothing that torch writes has them.
      if (!is_utf8(node.text)) return leave_out();
      return Value(std::string(node.text));
    case PickleKind::bytes: return Value(ValueBytes{std::string(node.text)});
    case PickleKind::list:
      return read_items(node.items).map([](ValueList&& items) { return std::optional(Value(std::move(items))); });
    case PickleKind::tuple:
      return read_items(node.items).map([](ValueList&& items) {
        return std::optional(Value(ValueTuple{std::move(items)}));
      });
    case PickleKind::dict:
      return read_pairs(node.items).map([](ValueDict&& dict) { return std::optional(Value(std::move(dict))); });
    case PickleKind::global: return read_global(node);
    case PickleKind::call: return read_call(id);
    case PickleKind::set:
    case PickleKind::persistent_id:
    case PickleKind::other: return leave_out();
  }
  return leave_out();
}

// Seeds of torch have 64 bits without a sign, so that the highest one needs a ninth byte. Larger integers are left out.
TreeReader::MaybeValue TreeReader::read_big_integer(const PickleNode& node) {
  constexpr std::size_t kBytes = sizeof(std::uint64_t);
  if (node.text.size() != kBytes + 1 || node.text.back() != '\0') return leave_out();
  return Value(ValueBigInt{std::to_string(load_le<std::uint64_t>(as_byte_span(node.text).data()))});
}

TreeReader::MaybeValue TreeReader::read_real(const PickleNode& node) {
  if (node.text.size() != sizeof(double)) return leave_out();
  std::string bytes(node.text);
  std::ranges::reverse(bytes);
  return Value(std::bit_cast<double>(load_le<std::uint64_t>(as_byte_span(bytes).data())));
}

TreeReader::MaybeValue TreeReader::read_global(const PickleNode& node) {
  const auto [module, name] = name_of(node);
  if (module != "torch" || torch_dtype(name) == TorchType()) return leave_out();
  return typed("torch.dtype", Value(std::string(name)));
}

Result<ValueList> TreeReader::read_items(const std::vector<NodeId>& items) {
  ValueList values;
  for (std::size_t i = 0; i < items.size(); ++i) {
    place_.push_back(std::to_string(i));
    BITSNAP_ASSIGN(std::optional<Value> value, read(items[i]));
    place_.pop_back();
    // The other items keep their places.
    values.push_back(std::move(value).value_or(Value()));
  }
  return values;
}

std::string place_name(const PickleNode& key, std::size_t position) {
  if (key.kind == PickleKind::string) return std::string(key.text.substr(0, kMostPlaceBytes));
  return key.kind == PickleKind::integer ? std::to_string(key.integer) : fmt::format("#{}", position);
}

Result<ValueDict> TreeReader::read_pairs(const std::vector<NodeId>& items) {
  ValueDict dict;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    place_.push_back(items[i] < graph_.nodes.size() ? place_name(graph_.at(items[i]), i / 2) : std::string());
    BITSNAP_ASSIGN(std::optional<Value> key, read(items[i]));
    BITSNAP_ASSIGN(std::optional<Value> value, read(items[i + 1]));
    place_.pop_back();
    if (key && value) dict.entries.emplace_back(std::move(*key), std::move(*value));
  }
  return dict;
}

Result<ValueDict> TreeReader::read_list_of_pairs(const std::vector<NodeId>& items) {
  std::vector<NodeId> flat;
  for (const NodeId item : items) {
    if (item >= graph_.nodes.size() || graph_.at(item).items.size() != 2) continue;
    std::ranges::copy(graph_.at(item).items, std::back_inserter(flat));
  }
  return read_pairs(flat);
}

TreeReader::MaybeValue TreeReader::read_call(NodeId id) {
  if (const auto found = tensors_.find(id); found != tensors_.end()) {
    if (found->second == kLeftOut) return std::optional<Value>();
    const std::optional<TensorCall> tensor = find_tensor_call(graph_, id);
    if (tensor && (tensor->has_other_class || std::ranges::any_of(tensor->states, [this](NodeId state) {
                     return holds_something(graph_, state);
                   }))) {
      leave_out();  // the class, or the attributes; the elements stay
    }
    return Value(ValueTensor{found->second});
  }
  const PickleNode& call = graph_.at(id);
  const std::string_view function = torch_function(graph_, call.callable);
  if (function == "Size") {
    const auto extents = read_extents(graph_, id, limits_);
    if (!extents || !*extents) return leave_out();
    ValueTuple sizes;
    for (const std::uint64_t extent : **extents) sizes.items.emplace_back(static_cast<std::int64_t>(extent));
    return typed("torch.Size", Value(std::move(sizes)));
  }
  if (function == "device") return read_device(call);
  const PickleNode* const callable = graph_.find(call.callable, PickleKind::global);
  if (callable != nullptr && name_of(*callable) == std::pair<std::string_view, std::string_view>("_codecs", "encode")) {
    return read_bytes(call);
  }
  return read_python_call(python_function(graph_, call.callable), call);
}

TreeReader::MaybeValue TreeReader::read_python_call(std::string_view function, const PickleNode& call) {
  if (function == "OrderedDict") return read_ordered_dict(call);
  if (function == "set" || function == "frozenset") return read_set(function, call);
  if (function == "Counter" && call.state == kNoNode) {
    const PickleNode* dict = graph_.find(argument(call, 0), PickleKind::dict);
    BITSNAP_ASSIGN(ValueDict counts, read_pairs(dict == nullptr ? call.items : dict->items));
    return typed("collections.Counter", Value(std::move(counts)));
  }
  if (function == "defaultdict" && call.state == kNoNode) {
    const std::string_view factory = python_function(graph_, argument(call, 0));
    BITSNAP_ASSIGN(ValueDict dict, read_pairs(call.items));
    if (factory.empty()) return leave_out();
    ValueTuple content;
    content.items.emplace_back(std::string(factory));
    content.items.emplace_back(std::move(dict));
    return typed("collections.defaultdict", Value(std::move(content)));
  }
  if (function == "bytes" && call.items.empty() && argument(call, 0) == kNoNode) return Value(ValueBytes());
  if (function == "complex") {
    const PickleNode* re = graph_.find(argument(call, 0), PickleKind::real);
    const PickleNode* im = graph_.find(argument(call, 1), PickleKind::real);
    if (re == nullptr || im == nullptr) return leave_out();
    BITSNAP_ASSIGN(const auto real, read_real(*re));
    BITSNAP_ASSIGN(const auto imaginary, read_real(*im));
    if (!real || !imaginary) return std::optional<Value>();
    return Value(std::complex<double>(std::get<double>(real->get()), std::get<double>(imaginary->get())));
  }
  return leave_out();
}

TreeReader::MaybeValue TreeReader::read_ordered_dict(const PickleNode& call) {
  const PickleNode* pairs = graph_.find(argument(call, 0), PickleKind::list);
  BITSNAP_ASSIGN(ValueDict dict, pairs == nullptr ? read_pairs(call.items) : read_list_of_pairs(pairs->items));
  // state_dict() gives its dict the versions of the modules.
  const NodeId metadata = call.state == kNoNode ? kNoNode : graph_.lookup(call.state, "_metadata");
  const PickleNode* attributes = graph_.find(call.state, PickleKind::dict);
  if (attributes != nullptr && attributes->items.size() > (metadata == kNoNode ? 0U : 2U)) leave_out();
  if (metadata == kNoNode) return typed("collections.OrderedDict", Value(std::move(dict)));
  place_.emplace_back("_metadata");
  BITSNAP_ASSIGN(std::optional<Value> versions, read(metadata));
  place_.pop_back();
  if (!versions || std::holds_alternative<std::monostate>(versions->get())) {
    return typed("collections.OrderedDict", Value(std::move(dict)));
  }
  ValueTuple content;
  content.items.emplace_back(std::move(dict));
  content.items.push_back(*std::move(versions));
  return typed("collections.OrderedDict", Value(std::move(content)));
}

// The typed tree orders the items of a set by their text.
TreeReader::MaybeValue TreeReader::read_set(std::string_view function, const PickleNode& call) {
  const PickleNode* list = graph_.find(argument(call, 0), PickleKind::list);
  if (list == nullptr) return leave_out();
  std::vector<std::pair<std::string, Value>> keys;
  BITSNAP_ASSIGN(ValueList items, read_items(list->items));
  for (Value& item : items) {
    auto text = serialize_value(item, limits_);
    if (!text) return leave_out();
    keys.emplace_back(*std::move(text), std::move(item));
  }
  std::ranges::sort(keys, {}, &std::pair<std::string, Value>::first);
  ValueTuple content;
  for (auto& [text, item] : keys) content.items.push_back(std::move(item));
  return typed(function, Value(std::move(content)));
}

TreeReader::MaybeValue TreeReader::read_bytes(const PickleNode& call) {
  const PickleNode* text = graph_.find(argument(call, 0), PickleKind::string);
  if (text == nullptr || text_of(argument(call, 1)) != "latin1") return leave_out();
  ValueBytes value;
  for (std::size_t i = 0; i < text->text.size(); ++i) {
    const auto first = static_cast<unsigned char>(text->text[i]);
    if (first < 0x80) {
      value.bytes += text->text[i];
    } else if ((first & 0xfcU) == 0xc0U && i + 1 < text->text.size()) {
      const auto second = static_cast<unsigned char>(text->text[++i]);
      value.bytes += static_cast<char>(((first & 0x03U) << 6U) | (second & 0x3fU));
    } else {
      return leave_out();
    }
  }
  return Value(std::move(value));
}

TreeReader::MaybeValue TreeReader::read_device(const PickleNode& call) {
  std::string device(text_of(argument(call, 0)));
  if (device.empty()) return leave_out();
  if (const PickleNode* index = graph_.find(argument(call, 1), PickleKind::integer)) {
    device += fmt::format(":{}", index->integer);
  }
  return typed("torch.device", Value(std::move(device)));
}

Result<TorchStateTensor> place_tensor(const TorchTensor& tensor, const StorageRange& range) {
  if (tensor.type.bytes == 0) {
    return fail(ErrorKind::unsupported, fmt::format("tensor {}: its elements have the type {}, which has no size",
                                                    quote_name(tensor.name), tensor.type.name));
  }
  const std::optional<std::uint64_t> span = strided_span(tensor.shape, tensor.stride);
  const auto end = span ? checked_add(tensor.offset, *span) : std::nullopt;
  const auto bytes = end ? checked_multiply(*end, std::uint64_t{tensor.type.bytes}) : std::nullopt;
  if (!bytes || *bytes > range.bytes) {
    return fail(ErrorKind::corrupt, fmt::format("tensor {} exceeds its storage", quote_name(tensor.name)));
  }
  return TorchStateTensor{.name = tensor.name,
                          .type = tensor.type,
                          .shape = tensor.shape,
                          .stride = tensor.stride,
                          .offset = range.offset + tensor.offset * tensor.type.bytes};
}

}  // namespace

Result<TorchState> read_torch_state(const PickleGraph& graph, const TorchObjects& objects,
                                    std::span<const StorageRange> ranges, bool is_big_endian,
                                    const DecodeLimits& limits) {
  if (is_big_endian) return fail(ErrorKind::unsupported, "the elements are big-endian");
  TorchState state;
  std::uint64_t most_bytes = kFreeTensorBytes;
  for (const StorageRange& range : ranges) most_bytes += kTensorBytesPerByte * range.bytes;
  most_bytes = scale_limit(most_bytes, limits);
  std::uint64_t bytes = 0;
  std::map<NodeId, std::size_t> indices;
  for (const TorchTensor& tensor : objects.tensors) {
    if (const std::string_view what = peculiarity(graph, tensor); !what.empty()) {
      indices.try_emplace(tensor.node, kLeftOut);
      if (state.left_out.size() < kMostLeftOut) state.left_out.push_back(fmt::format("{} ({})", tensor.name, what));
      continue;
    }
    BITSNAP_ASSIGN(TorchStateTensor placed, place_tensor(tensor, ranges[tensor.storage]));
    const auto size = shape_size_bytes(DType::u8, tensor.shape);
    const auto more = size ? checked_multiply(*size, std::uint64_t{tensor.type.bytes}) : std::nullopt;
    if (!more || *more > most_bytes - bytes) {
      return fail(ErrorKind::resource_exhausted,
                  fmt::format("its tensors, written row by row, take more than {} bytes", most_bytes));
    }
    bytes += *more;
    indices.try_emplace(tensor.node, state.tensors.size());
    state.tensors.push_back(std::move(placed));
  }
  TreeReader reader(graph, indices, limits);
  BITSNAP_ASSIGN(state.tree, reader.run());
  for (std::string& place : reader.take_left_out()) state.left_out.push_back(std::move(place));
  return state;
}

}  // namespace bitsnap::interop
