#include "interop/state/rank_join.hpp"

#include <algorithm>
#include <bit>
#include <complex>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "base/quote_name.hpp"
#include "base/try.hpp"

namespace bitsnap::interop {
namespace {

// ---- tensors

// Which global tensor each tensor of each rank is a part of.
class GlobalNumbers {
 public:
  GlobalNumbers(const std::vector<StateParts>& ranks, const std::vector<GlobalTensor>& tensors)
      : ranks_(ranks), tensors_(tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      by_name_.emplace(tensors[i].name, i);
      for (const TensorPart& part : tensors[i].parts) by_part_.emplace(std::pair(part.shard, part.tensor), i);
    }
  }

  // Equal tensors of several ranks, and empty ones, are no parts: their names tell.
  [[nodiscard]] Result<std::size_t> find(std::size_t rank, std::size_t tensor) const {
    const auto part = by_part_.find(std::pair(static_cast<std::uint32_t>(rank), tensor));
    if (part != by_part_.end()) return part->second;
    const TensorInfo& info = ranks_[rank].tensors[tensor].info;
    for (const std::string& name : {info.global_name(), fmt::format("rank-{}/{}", rank, info.global_name())}) {
      const auto named = by_name_.find(name);
      if (named == by_name_.end()) continue;
      const GlobalTensor& found = tensors_[named->second];
      if (found.dtype_name == info.dtype_name && found.shape == info.global_shape()) return named->second;
    }
    return fail(ErrorKind::corrupt,
                fmt::format("rank {}: the index of the tensors lacks {}", rank, quote_name(info.global_name())));
  }

 private:
  const std::vector<StateParts>& ranks_;
  const std::vector<GlobalTensor>& tensors_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
  std::map<std::pair<std::uint32_t, std::size_t>, std::size_t> by_part_;
};

Result<TensorSource> whole_tensor(const GlobalTensor& tensor, const std::vector<StateParts>& ranks) {
  TensorInfo whole{.name = tensor.name,
                   .dtype = tensor.dtype,
                   .dtype_name = tensor.dtype_name,
                   .shape = tensor.shape,
                   .size_bytes = 0,
                   .role = tensor.role,
                   .shard = {},
                   .alias_of = {}};
  BITSNAP_ASSIGN(const std::uint64_t elements, shape_size_bytes(DType::u8, tensor.shape));
  std::vector<PartSource> parts;
  for (const TensorPart& part : tensor.parts) {
    const bool is_there = part.shard < ranks.size() && part.tensor < ranks[part.shard].tensors.size();
    const TensorSource* const source = is_there ? &ranks[part.shard].tensors[part.tensor] : nullptr;
    if (source == nullptr || source->info.dtype_name != tensor.dtype_name || source->info.shape != part.extent) {
      return fail(ErrorKind::corrupt,
                  fmt::format("rank {} does not hold the part of tensor {} that the index of the tensors names",
                              part.shard, quote_name(tensor.name)));
    }
    BITSNAP_ASSIGN(const std::uint64_t own, shape_size_bytes(DType::u8, part.extent));
    if (own > 0) whole.size_bytes = source->info.size_bytes / own * elements;
    parts.push_back({{part.offset, part.extent}, source->read});
  }
  // Boxes that are equal are listed once: these hold other values.
  for (std::size_t i = 1; i < tensor.parts.size(); ++i) {
    const TensorPart& part = tensor.parts[i];
    const TensorPart& before = tensor.parts[i - 1];
    if (part.offset == before.offset && part.extent == before.extent) {
      return fail(ErrorKind::corrupt,
                  fmt::format("tensor {}: shards {} and {} hold different values of the same elements",
                              quote_name(tensor.name), before.shard, part.shard));
    }
  }
  if (tensor.parts.empty()) whole.size_bytes = elements * element_size(tensor.dtype);
  return assemble(std::move(whole), std::move(parts));
}

// The global tensor that has the same memory in every rank that holds a part of tensor `number`, if there is one.
Result<std::optional<std::size_t>> tied_to(std::size_t number, const std::vector<GlobalTensor>& tensors,
                                           const std::vector<StateParts>& ranks, const GlobalNumbers& numbers) {
  const GlobalTensor& tensor = tensors[number];
  std::optional<std::size_t> tied;
  for (const TensorPart& part : tensor.parts) {
    const std::optional<std::size_t> owner = ranks[part.shard].tensors[part.tensor].info.alias_of;
    if (!owner) return std::optional<std::size_t>();
    BITSNAP_ASSIGN(const std::size_t found, numbers.find(part.shard, *owner));
    if (tied.value_or(found) != found) return std::optional<std::size_t>();
    tied = found;
  }
  const bool is_alike =
      tied && *tied < number && tensors[*tied].dtype_name == tensor.dtype_name && tensors[*tied].shape == tensor.shape;
  return is_alike ? tied : std::nullopt;
}

// ---- trees

std::uint64_t bits_of(double value) { return std::bit_cast<std::uint64_t>(value); }

bool same(const Value& a, const Value& b);

bool same(const ValueList& a, const ValueList& b) {
  return std::ranges::equal(a, b, [](const Value& x, const Value& y) { return same(x, y); });
}

// Dicts with other orders of their keys differ. Tensors are the same if their numbers are.
bool same(const Value& a, const Value& b) {
  if (a.get().index() != b.get().index()) return false;
  return std::visit(
      [&](const auto& value) {
        using T = std::remove_cvref_t<decltype(value)>;
        const T& other = std::get<T>(b.get());
        if constexpr (std::is_same_v<T, std::monostate>) {
          return true;
        } else if constexpr (std::is_same_v<T, double>) {
          return bits_of(value) == bits_of(other);
        } else if constexpr (std::is_same_v<T, std::complex<double>>) {
          return bits_of(value.real()) == bits_of(other.real()) && bits_of(value.imag()) == bits_of(other.imag());
        } else if constexpr (std::is_same_v<T, ValueBigInt>) {
          return value.decimal == other.decimal;
        } else if constexpr (std::is_same_v<T, ValueBytes>) {
          return value.bytes == other.bytes;
        } else if constexpr (std::is_same_v<T, ValueList>) {
          return same(value, other);
        } else if constexpr (std::is_same_v<T, ValueTuple>) {
          return same(value.items, other.items);
        } else if constexpr (std::is_same_v<T, ValueDict>) {
          return std::ranges::equal(value.entries, other.entries, [](const auto& x, const auto& y) {
            return same(x.first, y.first) && same(x.second, y.second);
          });
        } else if constexpr (std::is_same_v<T, ValueTensor>) {
          return value.index == other.index && value.kind == other.kind;
        } else if constexpr (std::is_same_v<T, ValueTyped>) {
          return value.type == other.type && same(value.content, other.content);
        } else {
          return value == other;
        }
      },
      a.get());
}

using RankedValue = std::pair<std::size_t, const Value*>;  // a value and its rank

// Values of ranks as one, and for each rank what it holds differently.
struct Joined {
  std::optional<Value> common;
  std::map<std::size_t, Value> own;  // by rank
};

// The dict that a value is: also that of an OrderedDict, whose other content are the versions of torch's modules.
const ValueDict* dict_in(const Value& value) {
  if (const auto* dict = std::get_if<ValueDict>(&value.get())) return dict;
  const auto* typed = std::get_if<ValueTyped>(&value.get());
  if (typed == nullptr || typed->type != "collections.OrderedDict") return nullptr;
  const Value& content = typed->content.front();
  if (const auto* with_metadata = std::get_if<ValueTuple>(&content.get())) {
    return with_metadata->items.empty() ? nullptr : std::get_if<ValueDict>(&with_metadata->items.front().get());
  }
  return std::get_if<ValueDict>(&content.get());
}

// A dict of the kind that `like` is.
Value dict_like(const Value& like, ValueDict dict) {
  const auto* typed = std::get_if<ValueTyped>(&like.get());
  if (typed == nullptr) return Value(std::move(dict));
  Value content(std::move(dict));
  if (const auto* with_metadata = std::get_if<ValueTuple>(&typed->content.front().get())) {
    ValueTuple both = *with_metadata;
    both.items.front() = std::move(content);
    content = Value(std::move(both));
  }
  return Value(ValueTyped{typed->type, {std::move(content)}});
}

std::string text_of_key(const Value& key) {
  const auto* text = std::get_if<std::string>(&key.get());
  return text != nullptr ? "s" + *text : "v" + serialize_value(key).value_or("");
}

Joined join(const std::vector<RankedValue>& values);

Joined join_dicts(const std::vector<RankedValue>& values) {
  std::vector<std::pair<const Value*, std::vector<RankedValue>>> entries;  // by key, in order of the ranks
  std::unordered_map<std::string, std::size_t> numbers;
  for (const auto& [rank, value] : values) {
    for (const auto& [key, item] : dict_in(*value)->entries) {
      const auto [at, is_new] = numbers.try_emplace(text_of_key(key), entries.size());
      if (is_new) entries.emplace_back(&key, std::vector<RankedValue>());
      entries[at->second].second.emplace_back(rank, &item);
    }
  }
  ValueDict common;
  std::map<std::size_t, ValueDict> own;
  for (const auto& [key, items] : entries) {
    Joined joined = join(items);
    if (joined.common) common.entries.emplace_back(*key, *std::move(joined.common));
    for (auto& [rank, value] : joined.own) own[rank].entries.emplace_back(*key, std::move(value));
  }
  Joined result;
  const Value& first = *values.front().second;
  if (!common.entries.empty() || own.empty()) result.common = dict_like(first, std::move(common));
  for (auto& [rank, dict] : own) result.own.emplace(rank, dict_like(first, std::move(dict)));
  return result;
}

Joined join(const std::vector<RankedValue>& values) {
  const Value& first = *values.front().second;
  if (std::ranges::all_of(values, [&](const RankedValue& each) { return same(*each.second, first); })) {
    return {.common = first, .own = {}};
  }
  const auto is_dict = [&](const RankedValue& each) {
    return dict_in(*each.second) != nullptr && each.second->get().index() == first.get().index();
  };
  if (std::ranges::all_of(values, is_dict)) return join_dicts(values);
  Joined apart;
  for (const auto& [rank, value] : values) apart.own.emplace(rank, *value);
  return apart;
}

// What only some ranks hold gets a name as the tensor index gives one. nullopt if the states are not dicts, and differ.
std::optional<Value> join_trees(const std::vector<RankedValue>& trees) {
  Joined joined = join(trees);
  if (joined.own.empty()) return std::move(joined.common);
  if (!std::ranges::all_of(trees, [](const RankedValue& each) { return dict_in(*each.second) != nullptr; })) return {};
  ValueDict all = joined.common ? *dict_in(*joined.common) : ValueDict();
  std::unordered_set<std::string> used;
  for (const auto& entry : all.entries) {
    if (const auto* text = std::get_if<std::string>(&entry.first.get())) used.insert(*text);
  }
  for (const auto& [rank, value] : joined.own) {
    for (const auto& [key, item] : dict_in(value)->entries) {
      const auto* text = std::get_if<std::string>(&key.get());
      const std::string name =
          fmt::format("rank-{}/{}", rank, text != nullptr ? *text : serialize_value(key).value_or(""));
      std::string unique = name;
      for (int count = 2; !used.insert(unique).second; ++count) unique = fmt::format("{}#{}", name, count);
      all.entries.emplace_back(Value(std::move(unique)), item);
    }
  }
  return Value(std::move(all));
}

// In a dict by the names of tensors, as DCP saves one, boxes get the names of the tensors that they are of.
void name_boxes(Value& tree, const std::vector<TensorSource>& tensors) {
  auto* dict = std::get_if<ValueDict>(&tree.get());
  if (dict == nullptr) return;
  std::set<std::string> named;
  std::erase_if(dict->entries, [&](auto& entry) {
    const auto* tensor = std::get_if<ValueTensor>(&entry.second.get());
    auto* name = std::get_if<std::string>(&entry.first.get());
    if (tensor == nullptr || name == nullptr) return false;
    const TensorInfo& info = tensors[tensor->index].info;
    if (*name != info.name || *name == info.global_name()) return false;
    *name = info.global_name();
    return !named.insert(*name).second;
  });
}

Result<void> join_values(std::vector<StateParts>& ranks, const GlobalNumbers& numbers, StateParts& whole) {
  std::vector<RankedValue> trees;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].tree) continue;
    std::vector<std::size_t> global;
    for (std::size_t i = 0; i < ranks[rank].tensors.size(); ++i) {
      BITSNAP_ASSIGN(const std::size_t number, numbers.find(rank, i));
      global.push_back(number);
    }
    name_boxes(*ranks[rank].tree, ranks[rank].tensors);
    renumber_tensors(*ranks[rank].tree, [&](std::size_t index) { return global[index]; });
    trees.emplace_back(rank, &*ranks[rank].tree);
  }
  if (trees.size() == ranks.size()) whole.tree = join_trees(trees);
  if (whole.tree) return {};
  for (const auto& [rank, tree] : trees) {
    if (has_other_values(*tree)) whole.left_out.push_back(fmt::format("rank-{}: its values besides tensors", rank));
  }
  return {};
}

}  // namespace

Result<StateParts> join_ranks(std::vector<StateParts> ranks, const std::vector<GlobalTensor>& tensors) {
  const GlobalNumbers numbers(ranks, tensors);
  StateParts whole;
  whole.file_bytes = UINT64_MAX;  // snapshots have their own bounds
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    BITSNAP_ASSIGN(TensorSource tensor, whole_tensor(tensors[i], ranks));
    BITSNAP_ASSIGN(tensor.info.alias_of, tied_to(i, tensors, ranks, numbers));
    whole.tensors.push_back(std::move(tensor));
  }
  BITSNAP_TRY(join_values(ranks, numbers, whole));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (auto& [key, value] : ranks[rank].metadata) {
      const auto known = std::ranges::find(whole.metadata, key, &std::pair<std::string, std::string>::first);
      if (known == whole.metadata.end()) {
        whole.metadata.emplace_back(key, value);
      } else if (known->second != value) {
        whole.left_out.push_back(fmt::format("rank-{}: metadata '{}'", rank, key));
      }
    }
    for (std::string& place : ranks[rank].left_out) whole.left_out.push_back(std::move(place));
  }
  return whole;
}

}  // namespace bitsnap::interop
