// serialize_value(): a typed tree as JSON. docs/spec/typed_tree.md. Recursion is bounded by the depth limit.
#include "container/value_text.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <set>
#include <string>

#include <fmt/format.h>
#include <bitsnap/value.hpp>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/json_text.hpp"
#include "container/json_writer.hpp"
#include "container/value_reader.hpp"

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
    return put_text("bytes", to_base64(value.bytes));
  }

  Result<void> write_value(const ValueList& value, std::size_t depth, bool is_key) {
    return is_key ? not_a_key() : write_items(value, depth, false);
  }

  Result<void> write_value(const ValueTuple& value, std::size_t depth, bool is_key) {
    return write_tagged("tuple", [&] { return write_items(value.items, depth, is_key); });
  }

  Result<void> write_value(const ValueDict& value, std::size_t depth, bool is_key) {
    if (is_key) return not_a_key();
    return write_tagged("dict", [&]() -> Result<void> {
      std::set<std::string> keys;
      out_.begin_array();
      for (const auto& [key, item] : value.entries) {
        out_.begin_array();
        const std::size_t begin = out_.text().size();
        BITSNAP_TRY(write(key, depth + 1, true));
        if (const auto [at, is_new] = keys.insert(out_.text().substr(begin)); !is_new) {
          return fail(ErrorKind::invalid_argument,
                      fmt::format("tree: key {} appears twice in a dict", quote_name(*at)));
        }
        BITSNAP_TRY(write(item, depth + 1, false));
        out_.end_array();
      }
      out_.end_array();
      return {};
    });
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
  JsonWriter out_{JsonEscapes::without_b_and_f};
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
