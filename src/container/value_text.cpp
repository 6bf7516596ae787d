// serialize_value(): a typed tree as JSON. docs/spec/typed_tree.md. Recursion is bounded by the depth limit.
#include "container/value_text.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <compare>
#include <type_traits>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "base/utf8.hpp"
#include "container/value_reader.hpp"
#include "json/json_text.hpp"
#include "json/json_writer.hpp"

namespace bitsnap::container {

bool is_plain_integer(std::int64_t number) noexcept {
  constexpr auto kMax = static_cast<std::int64_t>(kMaxPlainInteger);
  return number >= -kMax && number <= kMax;
}

bool is_decimal(std::string_view text) noexcept {
  if (text == "0") return true;
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.front() != '0' && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_type_name(std::string_view text) noexcept {
  constexpr std::size_t kLongest = 64;
  return !text.empty() && text.size() <= kLongest &&
         text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.") ==
             std::string_view::npos;
}

std::optional<std::int64_t> to_int64(std::string_view text) noexcept {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

namespace {

std::optional<std::int64_t> small_integer(const Value& value) noexcept {
  if (const auto* const integer = std::get_if<std::int64_t>(&value.get())) return *integer;
  const auto* const decimal = std::get_if<ValueBigInt>(&value.get());
  return decimal != nullptr ? to_int64(decimal->decimal) : std::nullopt;
}

// A total order, equal if kind and value are; doubles by their bits. Precondition: both may be keys.
std::strong_ordering compare_keys(const Value& a, const Value& b) {
  const std::optional<std::int64_t> small_a = small_integer(a);
  const std::optional<std::int64_t> small_b = small_integer(b);
  if (small_a && small_b) return *small_a <=> *small_b;
  if (small_a || small_b) return small_b.has_value() <=> small_a.has_value();
  if (a.get().index() != b.get().index()) return a.get().index() <=> b.get().index();
  return std::visit(
      [&](const auto& left) -> std::strong_ordering {
        using Kind = std::decay_t<decltype(left)>;
        const auto& right = std::get<Kind>(b.get());
        if constexpr (std::is_same_v<Kind, double>) {
          return std::bit_cast<std::uint64_t>(left) <=> std::bit_cast<std::uint64_t>(right);
        } else if constexpr (std::is_integral_v<Kind> || std::is_same_v<Kind, std::string>) {
          return left <=> right;
        } else if constexpr (std::is_same_v<Kind, ValueBigInt>) {
          return left.decimal <=> right.decimal;
        } else if constexpr (std::is_same_v<Kind, ValueBytes>) {
          return left.bytes <=> right.bytes;
        } else if constexpr (std::is_same_v<Kind, ValueTuple>) {
          return std::lexicographical_compare_three_way(left.items.begin(), left.items.end(), right.items.begin(),
                                                        right.items.end(), compare_keys);
        } else if constexpr (std::is_same_v<Kind, ValueTyped>) {
          const auto types = left.type <=> right.type;
          return types != 0 ? types : compare_keys(left.content.front(), right.content.front());
        } else {
          return std::strong_ordering::equal;
        }
      },
      a.get());
}

}  // namespace

std::optional<std::string> find_repeated_key(const ValueDict& dict) {
  // Names have long common beginnings and are compared slowly: by their hashes first, which are seldom equal.
  struct Key {
    std::uint64_t hash = 0;  // equal for equal keys
    const Value* value = nullptr;
  };
  const auto compare = [](const Key& a, const Key& b) {
    return a.hash != b.hash ? a.hash <=> b.hash : compare_keys(*a.value, *b.value);
  };
  std::vector<Key> keys;
  keys.reserve(dict.entries.size());
  for (const auto& [key, value] : dict.entries) {
    const auto* const text = std::get_if<std::string>(&key.get());
    keys.push_back({text != nullptr ? hash64(as_byte_span(*text)) : 0, &key});
  }
  const auto is_before = [&](const Key& a, const Key& b) { return compare(a, b) < 0; };
  if (!std::ranges::is_sorted(keys, is_before)) std::ranges::sort(keys, is_before);
  const auto repeated =
      std::ranges::adjacent_find(keys, [&](const Key& a, const Key& b) { return compare(a, b) == 0; });
  if (repeated == keys.end()) return std::nullopt;
  const Result<std::string> text = serialize_value(*repeated->value);
  return fmt::format("key {} appears twice in a dict", quote_name(text ? *text : ""));
}

namespace {

class ValueWriter {
 public:
  explicit ValueWriter(const DecodeLimits& limits) : limits_(limits) {}

  Result<void> write(const Value& value, std::size_t depth, bool is_key) {
    if (depth > std::min<std::size_t>(kMaxTreeDepth, limits_.tree_depth)) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("tree: nested deeper than {}", std::min<std::size_t>(kMaxTreeDepth, limits_.tree_depth)));
    }
    if (++nodes_ > limits_.tree_nodes) {
      return fail(ErrorKind::invalid_argument, fmt::format("tree: more than {} values", limits_.tree_nodes));
    }
    return std::visit([&](const auto& v) { return write_value(v, depth, is_key); }, value.get());
  }

  [[nodiscard]] std::string take_text() { return out_.take_text(); }

 private:
  Result<void> write_value(std::monostate, std::size_t, bool) { return put("null"); }
  Result<void> write_value(bool value, std::size_t, bool) { return put(value ? "true" : "false"); }

  Result<void> write_value(std::int64_t value, std::size_t, bool) {
    return is_plain_integer(value) ? put(std::to_string(value)) : put_text("int", std::to_string(value));
  }

  Result<void> write_value(const ValueBigInt& value, std::size_t depth, bool is_key) {
    if (!is_decimal(value.decimal)) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("tree: {} is not a decimal integer", quote_name(value.decimal)));
    }
    if (const std::optional<std::int64_t> small = to_int64(value.decimal)) return write_value(*small, depth, is_key);
    const std::size_t digits = value.decimal.size() - (value.decimal.starts_with('-') ? 1 : 0);
    if (digits > limits_.integer_digits) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("tree: an integer of {} digits exceeds the limit of {}", digits, limits_.integer_digits));
    }
    return put_text("int", value.decimal);
  }

  Result<void> write_value(double value, std::size_t, bool) {
    if (!std::isfinite(value)) return put_text("f64", fmt::format("{:016x}", std::bit_cast<std::uint64_t>(value)));
    out_.number(value);
    return {};
  }

  Result<void> write_value(const std::complex<double>& value, std::size_t depth, bool is_key) {
    if (is_key) return not_a_key();
    return write_tagged("complex", [&]() -> Result<void> {
      out_.begin_array();
      BITSNAP_TRY(write_value(value.real(), depth, false));
      BITSNAP_TRY(write_value(value.imag(), depth, false));
      out_.end_array();
      return {};
    });
  }

  Result<void> write_value(const std::string& value, std::size_t, bool) {
    if (!is_utf8(value)) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("tree: the string {} is not valid UTF-8", quote_name(value)));
    }
    out_.string(value);
    return {};
  }

  Result<void> write_value(const ValueBytes& value, std::size_t, bool) {
    return put_text("bytes", json::to_base64(value.bytes));
  }

  Result<void> write_value(const ValueList& value, std::size_t depth, bool is_key) {
    return is_key ? not_a_key() : write_items(value, depth, false);
  }

  Result<void> write_value(const ValueTuple& value, std::size_t depth, bool is_key) {
    return write_tagged("tuple", [&] { return write_items(value.items, depth, is_key); });
  }

  Result<void> write_value(const ValueDict& value, std::size_t depth, bool is_key) {
    if (is_key) return not_a_key();
    const auto write_entries = [&]() -> Result<void> {
      out_.begin_array();
      for (const auto& [key, item] : value.entries) {
        out_.begin_array();
        BITSNAP_TRY(write(key, depth + 1, true));
        BITSNAP_TRY(write(item, depth + 1, false));
        out_.end_array();
      }
      out_.end_array();
      return {};
    };
    BITSNAP_TRY(write_tagged("dict", write_entries));
    if (const std::optional<std::string> repeated = find_repeated_key(value)) {
      return fail(ErrorKind::invalid_argument, "tree: " + *repeated);
    }
    return {};
  }

  Result<void> write_value(const ValueTensor& value, std::size_t, bool is_key) {
    if (is_key) return not_a_key();
    constexpr std::string_view kTags[] = {"tensor", "array", "scalar"};
    return put(fmt::format(R"({{"{}":{}}})", kTags[static_cast<std::size_t>(value.kind)], value.index));
  }

  Result<void> write_value(const ValueTyped& value, std::size_t depth, bool is_key) {
    if (!is_type_name(value.type)) {
      return fail(ErrorKind::invalid_argument, fmt::format("tree: {} is not a type name", quote_name(value.type)));
    }
    if (value.content.size() != 1) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("tree: a typed value of type {} must have 1 content value, got {}", value.type,
                              value.content.size()));
    }
    return write_tagged("typed", [&]() -> Result<void> {
      out_.begin_array();
      out_.string(value.type);
      BITSNAP_TRY(write(value.content.front(), depth + 1, is_key));
      out_.end_array();
      return {};
    });
  }

  Result<void> write_items(const ValueList& items, std::size_t depth, bool is_key) {
    out_.begin_array();
    for (const Value& item : items) BITSNAP_TRY(write(item, depth + 1, is_key));
    out_.end_array();
    return {};
  }

  // {"tag": value}, where write() writes the value.
  template <typename Write>
  Result<void> write_tagged(std::string_view tag, const Write& write) {
    out_.begin_object();
    out_.key(tag);
    BITSNAP_TRY(write());
    out_.end_object();
    return {};
  }

  Result<void> put(std::string_view json) {
    out_.json(json);
    return {};
  }
  // Precondition: nothing in `text` needs an escape.
  Result<void> put_text(std::string_view tag, std::string_view text) {
    return put(fmt::format(R"({{"{}":"{}"}})", tag, text));
  }

  static Result<void> not_a_key() {
    return fail(ErrorKind::invalid_argument, "tree: a key of a dict has a type that keys cannot have");
  }

  const DecodeLimits& limits_;
  json::JsonWriter out_{json::JsonEscapes::without_b_and_f};
  std::uint64_t nodes_ = 0;
};

}  // namespace
}  // namespace bitsnap::container

namespace bitsnap {

Result<std::string> serialize_value(const Value& value, const DecodeLimits& limits) {
  return no_throw("typed tree", [&]() -> Result<std::string> {
    container::ValueWriter writer(limits);
    BITSNAP_TRY(writer.write(value, 1, false));
    return writer.take_text();
  });
}

}  // namespace bitsnap
