// Structs as JSON objects, by a table of fields each: reading with checks, and writing, come from the same table.
//
//   struct Staged { std::uint64_t ticket = 0; bool again = false; std::string attempt; };
//   constexpr auto json_fields(std::type_identity<Staged>) {
//     return std::array{json_field<&Staged::ticket>("ticket"),
//                       json_field<&Staged::again>("again", JsonNeed::defaulted),
//                       json_field<&Staged::attempt>("attempt", JsonNeed::optional).must("a name", is_valid_attempt)};
//   }
//
// read_json() and write_json() find the table by the struct's type. Unknown keys are skipped, unless the struct says
// otherwise: `static constexpr auto kOnUnknownKey = reject_as_unsupported;`. A member may be a bool, an integer, a
// string, an id (JsonId), a struct with a table, a std::tuple of those (an array with exactly these items), or a
// std::optional or std::vector of those; any other type needs a format of its own (JsonDefault shows what one has).
// Errors are corrupt and name the key: "key 'ticket': expected an unsigned integer, found a string".
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>

#include "base/try.hpp"
#include "json/json_reader.hpp"
#include "json/json_writer.hpp"

namespace bitsnap::json {

enum class JsonNeed : std::uint8_t {
  required,   // always written; an object without it is corrupt
  defaulted,  // always written; the member keeps its value if the key is missing
  optional,   // written unless it is empty, zero or false; the member keeps its value if the key is missing
};

template <typename Struct>
struct JsonField {
  std::string_view key;
  JsonNeed need = JsonNeed::required;
  Result<void> (*read)(JsonReader&, Struct&) = nullptr;
  void (*write)(JsonWriter&, const Struct&) = nullptr;
  bool (*is_set)(const Struct&) = nullptr;   // optional: whether it is written
  bool (*applies)(const Struct&) = nullptr;  // nullptr: always
  // Checked when the whole object has been read; nullptr: every value is valid.
  bool (*is_valid)(const Struct&) = nullptr;
  std::string_view expected = {};  // what a valid value is

  // The same field with a rule: is_valid(struct), or the object is corrupt: "key '...': expected ...".
  [[nodiscard]] constexpr JsonField must(std::string_view be, bool (*valid)(const Struct&)) const {
    JsonField field = *this;
    field.is_valid = valid;
    field.expected = be;
    return field;
  }

  // The same field, written and required only if applies(struct).
  [[nodiscard]] constexpr JsonField only_if(bool (*when)(const Struct&)) const {
    JsonField field = *this;
    field.applies = when;
    return field;
  }
};

// What happens to a key that the table lacks: called with the reader before its value.
using OnUnknownKey = FunctionRef<Result<void>(JsonReader&, std::string_view key)>;
[[nodiscard]] Result<void> skip_unknown_key(JsonReader& in, std::string_view key);
[[nodiscard]] Result<void> reject_as_corrupt(JsonReader& in, std::string_view key);
[[nodiscard]] Result<void> reject_as_unsupported(JsonReader& in, std::string_view key);

[[nodiscard]] Error missing_json_key(std::string_view key);
// "key '...': expected ...", as corrupt.
[[nodiscard]] tl::unexpected<Error> bad_json_key(std::string_view key, std::string_view expected);
[[nodiscard]] Error within_json_key(Error error, std::string_view key);
[[nodiscard]] Error wrong_json_length(std::size_t expected);
[[nodiscard]] Error unknown_json_name(std::span<const std::string_view> names);

// Reads one object into `to`, and checks it by the rules of the fields. At most 64 fields.
template <typename Struct>
[[nodiscard]] Result<void> read_json_fields(JsonReader& in, Struct& to, std::span<const JsonField<Struct>> fields,
                                            OnUnknownKey on_unknown = skip_unknown_key,
                                            std::string_view expected = "an object") {
  std::uint64_t seen = 0;
  const auto read_member = [&](std::string_view key) -> Result<void> {
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (fields[i].key != key) continue;
      seen |= std::uint64_t{1} << i;
      Result<void> read = fields[i].read(in, to);
      if (!read) return tl::unexpected(within_json_key(std::move(read).error(), key));
      return read;
    }
    return on_unknown(in, key);
  };
  BITSNAP_TRY(in.read_object(read_member, expected));
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const bool is_missing = (seen >> i & 1) == 0 && (fields[i].applies == nullptr || fields[i].applies(to));
    if (is_missing && fields[i].need == JsonNeed::required) return tl::unexpected(missing_json_key(fields[i].key));
  }
  for (const JsonField<Struct>& field : fields) {
    if (field.is_valid != nullptr && !field.is_valid(to)) return bad_json_key(field.key, field.expected);
  }
  return {};
}

// Writes the members without the braces around them: an object may have further ones.
template <typename Struct>
void write_json_members(JsonWriter& out, const Struct& from, std::span<const JsonField<Struct>> fields) {
  for (const JsonField<Struct>& field : fields) {
    if (field.need == JsonNeed::optional && !field.is_set(from)) continue;
    if (field.applies != nullptr && !field.applies(from)) continue;
    out.key(field.key);
    field.write(out, from);
  }
}

template <typename Struct>
void write_json_fields(JsonWriter& out, const Struct& from, std::span<const JsonField<Struct>> fields) {
  out.begin_object();
  write_json_members(out, from, fields);
  out.end_object();
}

// The table of a struct that has one.
template <typename Struct>
[[nodiscard]] std::span<const JsonField<Struct>> json_fields_of() {
  static constexpr auto kFields = json_fields(std::type_identity<Struct>());
  return kFields;
}

// 128 bits that are written as 32 hexadecimal digits.
template <typename T>
concept JsonId = requires(const T& id, std::string_view text) {
  { id.to_hex() } -> std::same_as<std::string>;
  { T::from_hex(text) } -> std::same_as<std::optional<T>>;
};
[[nodiscard]] Error bad_json_id(std::string_view text);

template <typename T>
inline constexpr bool kIsJsonList = false;
template <typename T>
inline constexpr bool kIsJsonList<std::vector<T>> = true;
template <typename T>
inline constexpr bool kIsJsonOptional = false;
template <typename T>
inline constexpr bool kIsJsonOptional<std::optional<T>> = true;

template <typename T>
inline constexpr bool kIsJsonTuple = false;
template <typename... Items>
inline constexpr bool kIsJsonTuple<std::tuple<Items...>> = true;

template <typename T>
[[nodiscard]] Result<void> read_json(JsonReader& in, T& to);

struct JsonListRules {
  std::string_view item = "entry";  // for messages: "stream 3: ...", "more than 255 inputs"
  std::string_view items = "entries";
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  ErrorKind too_many = ErrorKind::corrupt;
};

[[nodiscard]] Error too_many_json_items(const JsonListRules& rules);
[[nodiscard]] Error within_json_item(Error error, const JsonListRules& rules, std::size_t index);

// Reads an array item by item, by read_item(in, item); never more items than the rules allow.
template <typename Item, typename Read>
[[nodiscard]] Result<void> read_json_list(JsonReader& in, std::vector<Item>& to, const Read& read_item,
                                          const JsonListRules& rules = {}) {
  to.clear();
  return in.read_array([&]() -> Result<void> {
    if (to.size() >= rules.most) return tl::unexpected(too_many_json_items(rules));
    Result<void> read = read_item(in, to.emplace_back());
    if (!read) return tl::unexpected(within_json_item(std::move(read).error(), rules, to.size() - 1));
    return read;
  });
}

template <typename... Items>
[[nodiscard]] Result<void> read_json_tuple(JsonReader& in, std::tuple<Items...>& to) {
  std::size_t count = 0;
  BITSNAP_TRY(in.read_array([&]() -> Result<void> {
    if (count == sizeof...(Items)) return tl::unexpected(wrong_json_length(sizeof...(Items)));
    Result<void> read;
    std::size_t index = 0;
    const auto read_if_next = [&](auto& item) {
      if (index++ == count) read = read_json(in, item);
    };
    std::apply([&](auto&... items) { (read_if_next(items), ...); }, to);
    ++count;
    return read;
  }));
  if (count != sizeof...(Items)) return tl::unexpected(wrong_json_length(sizeof...(Items)));
  return {};
}

template <typename T>
Result<void> read_json(JsonReader& in, T& to) {
  if constexpr (std::is_same_v<T, bool>) {
    BITSNAP_ASSIGN(to, in.read_bool());
  } else if constexpr (std::is_same_v<T, std::string>) {
    BITSNAP_ASSIGN(to, in.read_string());
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    BITSNAP_ASSIGN(to, in.read_integer());
  } else if constexpr (std::is_unsigned_v<T>) {
    BITSNAP_ASSIGN(const std::uint64_t number, in.read_unsigned(std::numeric_limits<T>::max()));
    to = static_cast<T>(number);
  } else if constexpr (JsonId<T>) {
    BITSNAP_ASSIGN(const std::string text, in.read_string("an id"));
    const std::optional<T> id = T::from_hex(text);
    if (!id) return tl::unexpected(bad_json_id(text));
    to = *id;
  } else if constexpr (kIsJsonOptional<T>) {
    return read_json(in, to.emplace());
  } else if constexpr (kIsJsonList<T>) {
    return read_json_list(in, to, read_json<typename T::value_type>);
  } else if constexpr (kIsJsonTuple<T>) {
    return read_json_tuple(in, to);
  } else if constexpr (requires { T::kOnUnknownKey; }) {
    return read_json_fields<T>(in, to, json_fields_of<T>(), T::kOnUnknownKey);
  } else {
    return read_json_fields<T>(in, to, json_fields_of<T>());
  }
  return {};
}

// Beyond the types that are read: a double, and null for an empty std::optional.
template <typename T>
void write_json(JsonWriter& out, const T& from) {
  if constexpr (std::is_same_v<T, bool>) {
    out.boolean(from);
  } else if constexpr (std::is_same_v<T, std::string>) {
    out.string(from);
  } else if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, double>) {
    out.number(from);
  } else if constexpr (std::is_unsigned_v<T>) {
    out.number(std::uint64_t{from});
  } else if constexpr (JsonId<T>) {
    out.string(from.to_hex());
  } else if constexpr (kIsJsonOptional<T>) {
    if (!from) return out.null();
    write_json(out, *from);
  } else if constexpr (kIsJsonList<T>) {
    out.begin_array();
    for (const auto& item : from) write_json(out, item);
    out.end_array();
  } else if constexpr (kIsJsonTuple<T>) {
    out.begin_array();
    std::apply([&](const auto&... items) { (write_json(out, items), ...); }, from);
    out.end_array();
  } else {
    write_json_fields<T>(out, from, json_fields_of<T>());
  }
}

// How a member is read and written. Formats of their own have the same two functions.
struct JsonDefault {
  template <typename T>
  static Result<void> read(JsonReader& in, T& to) {
    return read_json(in, to);
  }
  template <typename T>
  static void write(JsonWriter& out, const T& from) {
    write_json(out, from);
  }
};

// An enum or a bool as the name at its position.
template <const auto& kNames>
struct JsonName {
  template <typename T>
  static Result<void> read(JsonReader& in, T& to) {
    if constexpr (kIsJsonOptional<T>) {
      return read(in, to.emplace());
    } else {
      BITSNAP_ASSIGN(const std::string name, in.read_string());
      const auto found = std::ranges::find(kNames, name);
      if (found == kNames.end()) return tl::unexpected(unknown_json_name(kNames));
      to = static_cast<T>(found - kNames.begin());
      return {};
    }
  }
  template <typename T>
  static void write(JsonWriter& out, const T& from) {
    if constexpr (kIsJsonOptional<T>) {
      write(out, *from);
    } else {
      out.string(kNames[static_cast<std::size_t>(from)]);
    }
  }
};

template <typename T>
[[nodiscard]] bool is_set_json(const T& member) {
  if constexpr (kIsJsonOptional<T>) {
    return member.has_value();
  } else if constexpr (kIsJsonList<T> || std::is_same_v<T, std::string>) {
    return !member.empty();
  } else if constexpr (std::is_arithmetic_v<T>) {
    return member != T();
  } else {
    return true;
  }
}

template <typename Member>
struct OwnerOf;
template <typename T, typename Struct>
struct OwnerOf<T Struct::*> {
  using Type = Struct;
};

// `Struct`: derives from the struct that declares the member, or is it.
template <auto kMember, typename Format = JsonDefault, typename Struct = typename OwnerOf<decltype(kMember)>::Type>
[[nodiscard]] constexpr JsonField<Struct> json_field(std::string_view key, JsonNeed need = JsonNeed::required) {
  return {.key = key,
          .need = need,
          .read = [](JsonReader& in, Struct& to) { return Format::read(in, to.*kMember); },
          .write = [](JsonWriter& out, const Struct& from) { Format::write(out, from.*kMember); },
          .is_set = [](const Struct& from) { return is_set_json(from.*kMember); }};
}

// A whole text as a struct that has a table, and back.
template <typename Struct>
[[nodiscard]] Result<Struct> parse_json(std::string_view text, std::size_t max_depth = kMaxJsonDepth) {
  const auto read = [](JsonReader& in) -> Result<Struct> {
    Struct value;
    BITSNAP_TRY(read_json(in, value));
    return value;
  };
  return read_whole_json(text, read, max_depth);
}

template <typename Struct>
[[nodiscard]] std::string serialize_json(const Struct& value, JsonEscapes escapes = JsonEscapes::all_short) {
  JsonWriter out(escapes);
  write_json(out, value);
  return out.take_text();
}

}  // namespace bitsnap::json
