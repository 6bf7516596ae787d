// Reads JSON text front to back: the caller asks for the value that it expects, and gets it or an error.
//
// RFC 8259 and nothing beyond it: UTF-8 without a byte order mark, no key twice in an object, arrays and objects nested
// at most max_depth deep. Integers are exact. It keeps only the current value and the keys of the open objects,
// so a small text never unfolds into much memory. The text must outlive its reader. After an error a reader is not used
// again. One thread at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <bitsnap/error.hpp>

#include "base/function_ref.hpp"

namespace bitsnap::json {

// Three for each of the 128 levels of a typed tree, and some for what encloses the tree.
inline constexpr std::size_t kMaxJsonDepth = 512;

enum class JsonType : std::uint8_t { null, boolean, number, string, array, object };

struct JsonNumber {
  enum class Kind : std::uint8_t {
    integer,       // no fraction, no exponent, and fits: a sign and 63 bits, or 64 bits
    huge_integer,  // no fraction, no exponent, does not fit
    real,          // a fraction or an exponent; finite
  };

  Kind kind = Kind::integer;
  bool negative = false;        // integer
  std::uint64_t magnitude = 0;  // integer
  double real = 0;              // real
};

class JsonReader {
 public:
  explicit JsonReader(std::string_view text, std::size_t max_depth = kMaxJsonDepth)
      : text_(text), max_depth_(max_depth) {}

  // The type of the next value, which stays unread.
  [[nodiscard]] Result<JsonType> peek();

  // Each reads the next value; corrupt, "expected ..., found ...", if it has another type or is out of range.
  [[nodiscard]] Result<void> read_null();
  [[nodiscard]] Result<bool> read_bool();
  [[nodiscard]] Result<std::string> read_string(std::string_view expected = "a string");
  [[nodiscard]] Result<JsonNumber> read_number(std::string_view expected = "a number");
  [[nodiscard]] Result<std::uint64_t> read_unsigned(std::uint64_t largest = std::numeric_limits<std::uint64_t>::max(),
                                                    std::string_view expected = {});
  [[nodiscard]] Result<std::int64_t> read_integer();

  // Calls read_member(key) for each member; it must read the member's value. The key is valid during the call.
  [[nodiscard]] Result<void> read_object(FunctionRef<Result<void>(std::string_view)> read_member,
                                         std::string_view expected = "an object");
  // Calls read_item() for each item; it must read the item.
  [[nodiscard]] Result<void> read_array(FunctionRef<Result<void>()> read_item, std::string_view expected = "an array");

  // Reads a value of any type and drops it.
  [[nodiscard]] Result<void> skip_value();

  // The text of the next value. Of an array or object only the quotes and brackets are checked: another reader reads
  // it.
  [[nodiscard]] Result<std::string_view> read_text();

  // For what is mostly written in one way. Each moves on only if exactly this comes next, without white space before
  // it: the literal, a string of printable ASCII without escapes, an integer of at most 18 digits.
  template <std::size_t kSize>
  [[nodiscard]] bool accept_literal(const char (&literal)[kSize]) noexcept {
    constexpr std::size_t kLength = kSize - 1;
    if (text_.size() - at_ < kLength || std::memcmp(text_.data() + at_, literal, kLength) != 0) return false;
    at_ += kLength;
    return true;
  }
  [[nodiscard]] bool accept_plain_string(std::string_view& to) noexcept;
  [[nodiscard]] bool accept_plain_unsigned(std::uint64_t& to) noexcept;
  [[nodiscard]] std::size_t position() const noexcept { return at_; }
  [[nodiscard]] std::size_t remaining() const noexcept { return text_.size() - at_; }
  void return_to(std::size_t position) noexcept { at_ = position; }  // within the same array or object

  // corrupt unless nothing but white space is left.
  [[nodiscard]] Result<void> finish();

  // "expected ..., found ...": the next value is not what the caller needs.
  [[nodiscard]] Error unexpected(std::string_view expected);

 private:
  [[nodiscard]] Result<std::string> lex_string();
  [[nodiscard]] Result<std::string_view> lex_text(std::string& unescaped);
  [[nodiscard]] Result<void> lex_escape(std::string& to);
  [[nodiscard]] Result<std::uint32_t> lex_hex4();
  [[nodiscard]] Result<JsonNumber> lex_number();
  [[nodiscard]] Result<void> lex_word(std::string_view word);
  [[nodiscard]] bool skip_digits() noexcept;
  void skip_space() noexcept;
  [[nodiscard]] bool accept(char c) noexcept;
  [[nodiscard]] Result<void> enter();
  [[nodiscard]] tl::unexpected<Error> malformed() const;

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  std::size_t max_depth_;
};

// Reads the whole text by `read(JsonReader&)`, as one value with nothing behind it.
template <typename Read>
[[nodiscard]] std::invoke_result_t<Read, JsonReader&> read_whole_json(std::string_view text, Read&& read,
                                                                      std::size_t max_depth = kMaxJsonDepth) {
  JsonReader in(text, max_depth);
  auto value = std::forward<Read>(read)(in);
  if (!value) return value;
  if (Result<void> end = in.finish(); !end) return tl::unexpected(std::move(end).error());
  return value;
}

}  // namespace bitsnap::json
