// parse_tree() and parse_value(). docs/spec/typed_tree.md.
#include "container/value_reader.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "container/value_text.hpp"
#include "json/json_reader.hpp"
#include "json/json_text.hpp"

namespace bitsnap::container {
namespace {

using json::JsonNumber;
using json::JsonReader;
using json::JsonType;

// Converting a decimal integer takes more than linear time.
constexpr std::size_t kDigitsPerNode = 8;

Result<Value> parse_int_text(std::string text) {
  if (!is_decimal(text)) return fail(ErrorKind::corrupt, fmt::format("{} is not a decimal integer", quote_name(text)));
  if (const std::optional<std::int64_t> small = to_int64(text)) {
    if (is_plain_integer(*small)) {
      return fail(ErrorKind::corrupt, fmt::format("the integer {} must be a JSON number, not a string", *small));
    }
    return Value(*small);
  }
  return Value(ValueBigInt{std::move(text)});
}

Result<Value> parse_f64_text(std::string_view text) {
  const std::optional<std::uint64_t> bits = json::parse_hex(text);
  if (!bits) {
    return fail(ErrorKind::corrupt, fmt::format("{} is not 16 lower-case hexadecimal digits", quote_name(text)));
  }
  const double number = std::bit_cast<double>(*bits);
  if (std::isfinite(number)) {
    return fail(ErrorKind::corrupt, fmt::format("the finite double {} must be a JSON number, not a string", text));
  }
  return Value(number);
}

Result<Value> parse_bytes_text(std::string_view text) {
  std::optional<std::string> bytes = json::parse_base64(text);
  if (!bytes) return fail(ErrorKind::corrupt, "bytes are not padded base64");
  return Value(ValueBytes{std::move(*bytes)});
}

bool may_be_key(const Value& value) noexcept {
  if (const auto* const tuple = std::get_if<ValueTuple>(&value.get())) {
    return std::ranges::all_of(tuple->items, may_be_key);
  }
  if (const auto* const typed = std::get_if<ValueTyped>(&value.get())) return may_be_key(typed->content.front());
  return !std::holds_alternative<std::complex<double>>(value.get()) &&
         !std::holds_alternative<ValueList>(value.get()) && !std::holds_alternative<ValueDict>(value.get()) &&
         !std::holds_alternative<ValueTensor>(value.get());
}

class TreeReader {
 public:
  TreeReader(JsonReader& in, const DecodeLimits& limits, std::vector<ValueTensor>& references)
      : in_(in), limits_(limits), references_(references) {}

  // `depth`: that of the value, from 1 on.
  Result<Value> read(std::size_t depth) {
    if (depth > kMaxTreeDepth) return fail(ErrorKind::corrupt, fmt::format("nested deeper than {}", kMaxTreeDepth));
    if (depth > limits_.tree_depth) {
      return fail(ErrorKind::resource_exhausted,
                  fmt::format("the nesting exceeds the limit of {} levels", limits_.tree_depth));
    }
    BITSNAP_TRY(count_nodes(1));
    BITSNAP_ASSIGN(const JsonType type, in_.peek());
    switch (type) {
      case JsonType::null: BITSNAP_TRY(in_.read_null()); return Value();
      case JsonType::boolean: {
        BITSNAP_ASSIGN(const bool value, in_.read_bool());
        return Value(value);
      }
      case JsonType::string: {
        BITSNAP_ASSIGN(std::string value, in_.read_string());
        return Value(std::move(value));
      }
      case JsonType::number: return read_number();
      case JsonType::array: {
        BITSNAP_ASSIGN(ValueList items, read_items(depth));
        return Value(std::move(items));
      }
      case JsonType::object: return read_tagged(depth);
    }
    return Value();
  }

  // "tree['\"key\"'][3]": where reading failed.
  [[nodiscard]] std::string place() const {
    constexpr std::size_t kLongestPlace = 400;
    return "tree" + (place_.size() > kLongestPlace ? place_.substr(0, kLongestPlace) + "..." : place_);
  }

 private:
  // A value inside of another one. Errors find their place from the inside out.
  template <typename WriteComponent>
  Result<Value> read_inside(std::size_t depth, const WriteComponent& component) {
    Result<Value> value = read(depth + 1);
    if (!value) place_.insert(0, fmt::format("[{}]", component()));
    return value;
  }

  Result<void> count_nodes(std::uint64_t nodes) {
    nodes_ += nodes;
    if (nodes_ <= limits_.tree_nodes) return {};
    return fail(ErrorKind::resource_exhausted,
                fmt::format("the number of values exceeds the limit of {}", limits_.tree_nodes));
  }

  Result<void> check_digits(std::string_view integer) {
    const std::size_t digits = integer.size() - (integer.starts_with('-') ? 1 : 0);
    if (digits > limits_.integer_digits) {
      return fail(ErrorKind::resource_exhausted,
                  fmt::format("an integer of {} digits exceeds the limit of {}", digits, limits_.integer_digits));
    }
    return count_nodes(digits / kDigitsPerNode);
  }

  Result<Value> read_number() {
    BITSNAP_ASSIGN(const JsonNumber number, in_.read_number());
    if (number.kind == JsonNumber::Kind::real) return Value(number.real);
    if (number.kind == JsonNumber::Kind::huge_integer) {
      return fail(ErrorKind::corrupt, "expected a value, found an integer beyond 64 bits");
    }
    if (number.magnitude > kMaxPlainInteger) {
      return fail(ErrorKind::corrupt, fmt::format("the integer {}{} is too large for a number",
                                                  number.negative ? "-" : "", number.magnitude));
    }
    const auto magnitude = static_cast<std::int64_t>(number.magnitude);
    return Value(number.negative ? -magnitude : magnitude);
  }

  Result<ValueList> read_items(std::size_t depth) {
    ValueList items;
    const auto read_item = [&]() -> Result<void> {
      BITSNAP_ASSIGN(Value item, read_inside(depth, [&] { return std::to_string(items.size()); }));
      items.push_back(std::move(item));
      return {};
    };
    BITSNAP_TRY(in_.read_array(read_item));
    return items;
  }

  // An object with one key, which is the type of its value.
  Result<Value> read_tagged(std::size_t depth) {
    std::optional<Value> value;
    const auto read_member = [&](std::string_view tag) -> Result<void> {
      if (value) return fail(ErrorKind::corrupt, "an object has more than one key");
      BITSNAP_ASSIGN(value, read_tagged_value(tag, depth));
      return {};
    };
    BITSNAP_TRY(in_.read_object(read_member));
    if (!value) return fail(ErrorKind::corrupt, "an object without a key");
    return std::move(*value);
  }

  Result<Value> read_tagged_value(std::string_view tag, std::size_t depth) {
    if (tag == "int" || tag == "f64" || tag == "bytes") {
      BITSNAP_ASSIGN(std::string text, in_.read_string());
      if (tag == "int") BITSNAP_TRY(check_digits(text));
      return tag == "int"   ? parse_int_text(std::move(text))
             : tag == "f64" ? parse_f64_text(text)
                            : parse_bytes_text(text);
    }
    if (tag == "tensor") return read_reference(ValueTensor::Kind::tensor);
    if (tag == "array") return read_reference(ValueTensor::Kind::array);
    if (tag == "scalar") return read_reference(ValueTensor::Kind::scalar);
    if (tag == "complex") return read_complex();
    if (tag == "dict") return read_dict(depth);
    if (tag == "typed") return read_typed(depth);
    if (tag == "tuple") {
      BITSNAP_ASSIGN(ValueList items, read_items(depth));
      return Value(ValueTuple{std::move(items)});
    }
    return fail(ErrorKind::corrupt, fmt::format("unknown value type {}", quote_name(tag)));
  }

  // The name is not a value and does not count toward limits.
  Result<Value> read_typed(std::size_t depth) {
    ValueTyped typed;
    const auto read_part = [&]() -> Result<void> {
      if (!typed.content.empty()) return wrong_typed();
      if (typed.type.empty()) {
        BITSNAP_ASSIGN(typed.type, in_.read_string());
        if (is_type_name(typed.type)) return {};
        return fail(ErrorKind::corrupt, fmt::format("{} is not a type name", quote_name(typed.type)));
      }
      BITSNAP_ASSIGN(Value content, read(depth + 1));
      typed.content.push_back(std::move(content));
      return {};
    };
    BITSNAP_TRY(in_.read_array(read_part));
    if (typed.content.empty()) return wrong_typed();
    return Value(std::move(typed));
  }

  Result<Value> read_reference(ValueTensor::Kind kind) {
    constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();
    BITSNAP_ASSIGN(const std::uint64_t index, in_.read_unsigned(kLargest, "the index of a tensor"));
    references_.push_back({static_cast<std::size_t>(index), kind});
    return Value(references_.back());
  }

  Result<Value> read_dict(std::size_t depth) {
    ValueDict dict;
    const auto read_entry = [&]() -> Result<void> {
      std::optional<Value> key;
      std::optional<Value> item;
      const auto read_half = [&]() -> Result<void> {
        if (item) return wrong_pair();
        if (key) {
          BITSNAP_ASSIGN(item, read_inside(depth, [&] { return quote_name(serialize_value(*key).value_or("")); }));
          return {};
        }
        BITSNAP_ASSIGN(key, read(depth + 1));
        if (may_be_key(*key)) return {};
        return fail(ErrorKind::corrupt, "a key of a dict has a type that keys cannot have");
      };
      BITSNAP_TRY(in_.read_array(read_half, "a pair of key and value"));
      if (!item) return wrong_pair();
      dict.entries.emplace_back(std::move(*key), std::move(*item));
      return {};
    };
    BITSNAP_TRY(in_.read_array(read_entry));
    if (std::optional<std::string> repeated = find_repeated_key(dict)) {
      return fail(ErrorKind::corrupt, std::move(*repeated));
    }
    return Value(std::move(dict));
  }

  // The parts are not values and do not count toward limits.
  Result<Value> read_complex() {
    std::vector<double> parts;
    const auto read_part = [&]() -> Result<void> {
      if (parts.size() == 2) return fail(ErrorKind::corrupt, "a complex number must have two parts");
      BITSNAP_ASSIGN(const double part, read_double());
      parts.push_back(part);
      return {};
    };
    BITSNAP_TRY(in_.read_array(read_part));
    if (parts.size() != 2) return fail(ErrorKind::corrupt, "a complex number must have two parts");
    return Value(std::complex<double>(parts[0], parts[1]));
  }

  // A JSON number with fraction or exponent, or {"f64": ...}.
  Result<double> read_double() {
    BITSNAP_ASSIGN(const JsonType type, in_.peek());
    if (type == JsonType::object) {
      std::optional<Value> value;
      const auto read_member = [&](std::string_view tag) -> Result<void> {
        if (value || tag != "f64") return tl::unexpected(no_double());
        BITSNAP_ASSIGN(value, read_tagged_value(tag, 0));
        return {};
      };
      BITSNAP_TRY(in_.read_object(read_member));
      if (!value) return tl::unexpected(no_double());
      return std::get<double>(value->get());
    }
    if (type != JsonType::number) return tl::unexpected(no_double());
    BITSNAP_ASSIGN(const JsonNumber number, in_.read_number());
    if (number.kind != JsonNumber::Kind::real) return tl::unexpected(no_double());
    return number.real;
  }

  static Error no_double() { return Error(ErrorKind::corrupt, "a part of a complex number is not a double"); }
  static tl::unexpected<Error> wrong_typed() {
    return fail(ErrorKind::corrupt, "a typed value must have a name and a content");
  }
  static tl::unexpected<Error> wrong_pair() {
    return fail(ErrorKind::corrupt, "an entry of a dict must have a key and a value");
  }

  JsonReader& in_;
  const DecodeLimits& limits_;
  std::vector<ValueTensor>& references_;
  std::string place_;  // within the tree, of an error
  std::uint64_t nodes_ = 0;
};

Result<Value> parse_referring(std::string_view json, std::size_t tensor_count, const DecodeLimits& limits,
                              std::vector<ValueTensor>& references) {
  BITSNAP_ASSIGN(Value value, json::read_whole_json(json, [&](JsonReader& in) -> Result<Value> {
                   TreeReader reader(in, limits, references);
                   Result<Value> read = reader.read(1);
                   if (read) return read;
                   return tl::unexpected(std::move(read).error().within(reader.place()));
                 }));
  for (const ValueTensor& reference : references) {
    if (reference.index >= tensor_count) {
      return fail(ErrorKind::corrupt,
                  fmt::format("tree: refers to tensor {}, the state has {} tensors", reference.index, tensor_count));
    }
  }
  return value;
}

}  // namespace

Result<Value> parse_tree(std::string_view json, std::span<const TensorInfo> tensors, const DecodeLimits& limits) {
  return no_throw("typed tree", [&]() -> Result<Value> {
    std::vector<ValueTensor> references;
    BITSNAP_ASSIGN(Value value, parse_referring(json, tensors.size(), limits, references));
    for (const ValueTensor& reference : references) {
      const TensorInfo& info = tensors[reference.index];
      if (reference.kind == ValueTensor::Kind::scalar && !info.shape.empty()) {
        return fail(ErrorKind::corrupt, fmt::format("tree: tensor {} is a scalar with {} dimensions, expected none",
                                                    quote_name(info.name), info.shape.size()));
      }
    }
    return value;
  });
}

}  // namespace bitsnap::container

namespace bitsnap {

Result<Value> parse_value(std::string_view json, std::size_t tensor_count, const DecodeLimits& limits) {
  return no_throw("typed tree", [&]() -> Result<Value> {
    std::vector<ValueTensor> references;
    return container::parse_referring(json, tensor_count, limits, references);
  });
}

}  // namespace bitsnap
