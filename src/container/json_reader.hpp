// Reads JSON as a sequence of tokens, without ever holding it as a tree: what it says goes straight into the structures
// it is for, and a small file cannot unfold into much memory.
//
// RFC 8259 and no more: UTF-8 without a byte order mark, nothing after the value, no key twice in an object, at most
// kMaxJsonDepth arrays and objects deep. Nothing recurses. Integers are exact.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <bitsnap/error.hpp>

namespace bitsnap::container {

// Three for each of the 128 levels of a typed tree, and some for what is around it.
inline constexpr std::size_t kMaxJsonDepth = 512;

struct JsonToken {
  enum class Type : std::uint8_t {
    null,
    boolean,
    integer,       // no fraction, no exponent, fits: a sign and 64 bits, or 63 and the sign
    huge_integer,  // no fraction, no exponent, does not fit
    real,          // a fraction or an exponent; finite
    string,
    key,
    begin_array,
    end_array,
    begin_object,
    end_object,
  };

  Type type = Type::null;
  bool boolean = false;
  bool negative = false;        // integer
  std::uint64_t magnitude = 0;  // integer
  double real = 0;
  std::string text;  // string and key; the sink may move it away

  [[nodiscard]] bool is(Type wanted) const noexcept { return type == wanted; }
  [[nodiscard]] bool is_unsigned() const noexcept { return type == Type::integer && !negative; }
};

// "a string", "an object": for messages.
[[nodiscard]] std::string_view json_token_name(const JsonToken& token) noexcept;

// "expected an array, found a string", as corrupt.
[[nodiscard]] Error unexpected_token(std::string_view expected, const JsonToken& found);

class JsonSink {
 public:
  JsonSink() = default;
  JsonSink(const JsonSink&) = delete;
  JsonSink& operator=(const JsonSink&) = delete;
  virtual ~JsonSink() = default;

  // Tokens come in an order that JSON allows. An error ends the reading.
  [[nodiscard]] virtual Result<void> take(JsonToken& token) = 0;
};

// corrupt where the text is not JSON, else the first error of the sink.
[[nodiscard]] Result<void> read_json(std::string_view text, JsonSink& sink);

}  // namespace bitsnap::container
