// The lexer and the reader of JSON values.
#include "json/json_reader.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <deque>
#include <set>
#include <system_error>

#include <fmt/format.h>

#include <bitsnap/text.hpp>

#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "json/json_text.hpp"

namespace bitsnap::json {
namespace {

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// The nearest double; infinite if none is near. `text` has the form of a JSON number.
double parse_real(std::string_view text) noexcept {
  double real = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), real);
  if (parsed.ec == std::errc()) return real;
  // Out of range: too large or too small. The power of ten of the first digit that is not zero tells which.
  const std::size_t exponent_at = std::min(text.find_first_of("eE"), text.size());
  const std::string_view digits = text.substr(0, exponent_at);
  const std::size_t point = std::min(digits.find('.'), digits.size());
  const std::size_t first = digits.find_first_of("123456789");
  std::int64_t exponent = 0;
  if (exponent_at < text.size()) {
    std::string_view power = text.substr(exponent_at + 1);
    if (power.starts_with('+')) power.remove_prefix(1);
    // Half the range leaves room for the digits before the point.
    constexpr std::int64_t kLimit = std::numeric_limits<std::int64_t>::max() / 2;
    if (std::from_chars(power.data(), power.data() + power.size(), exponent).ec != std::errc()) {
      exponent = power.starts_with('-') ? -kLimit : kLimit;
    }
    exponent = std::clamp(exponent, -kLimit, kLimit);
  }
  exponent += static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first);
  return exponent > 0 ? std::numeric_limits<double>::infinity() : text.starts_with('-') ? -0.0 : 0.0;
}

void append_utf8(std::string& to, std::uint32_t code_point) {
  const auto put = [&to](std::uint32_t byte) { to.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

// The keys of an open object. Most objects have few, and few keys have escapes.
class Keys {
 public:
  // False if it is there already. `in_text`: its characters outlive this.
  bool insert(std::string_view key, bool in_text) {
    if (!in_text) key = unescaped_.emplace_back(key);
    if (many_.empty()) {
      for (std::size_t i = 0; i < count_; ++i) {
        if (few_[i] == key) return false;
      }
      if (count_ < few_.size()) {
        few_[count_++] = key;
        return true;
      }
      many_.insert(few_.begin(), few_.end());
    }
    return many_.insert(key).second;
  }

 private:
  std::array<std::string_view, 12> few_;
  std::size_t count_ = 0;
  std::set<std::string_view> many_;  // ordered: no choice of keys makes it slow
  std::deque<std::string> unescaped_;
};

std::string_view number_name(const JsonNumber& number) noexcept {
  switch (number.kind) {
    case JsonNumber::Kind::integer: return number.negative ? "a negative integer" : "an integer";
    case JsonNumber::Kind::huge_integer: return "an integer beyond 64 bits";
    case JsonNumber::Kind::real: return "a number with a fraction or an exponent";
  }
  return "a number";
}

}  // namespace

Result<JsonType> JsonReader::peek() {
  skip_space();
  if (at_ == text_.size()) return malformed();
  switch (text_[at_]) {
    case 'n': return JsonType::null;
    case 't':
    case 'f': return JsonType::boolean;
    case '"': return JsonType::string;
    case '[': return JsonType::array;
    case '{': return JsonType::object;
    default: break;
  }
  if (text_[at_] == '-' || is_digit(text_[at_])) return JsonType::number;
  return malformed();
}

Result<void> JsonReader::read_null() {
  BITSNAP_ASSIGN(const JsonType type, peek());
  if (type != JsonType::null) return tl::unexpected(unexpected("null"));
  return lex_word("null");
}

Result<bool> JsonReader::read_bool() {
  BITSNAP_ASSIGN(const JsonType type, peek());
  if (type != JsonType::boolean) return tl::unexpected(unexpected("true or false"));
  const bool value = text_[at_] == 't';
  BITSNAP_TRY(lex_word(value ? "true" : "false"));
  return value;
}

Result<std::string> JsonReader::read_string(std::string_view expected) {
  BITSNAP_ASSIGN(const JsonType type, peek());
  if (type != JsonType::string) return tl::unexpected(unexpected(expected));
  return lex_string();
}

Result<JsonNumber> JsonReader::read_number(std::string_view expected) {
  BITSNAP_ASSIGN(const JsonType type, peek());
  if (type != JsonType::number) return tl::unexpected(unexpected(expected));
  return lex_number();
}

Result<std::uint64_t> JsonReader::read_unsigned(std::uint64_t largest, std::string_view expected) {
  BITSNAP_ASSIGN(const JsonType type, peek());
  const std::size_t begin = at_;
  if (type == JsonType::number) {
    BITSNAP_ASSIGN(const JsonNumber number, lex_number());
    if (number.kind == JsonNumber::Kind::integer && !number.negative && number.magnitude <= largest) {
      return number.magnitude;
    }
  }
  at_ = begin;
  if (!expected.empty()) return tl::unexpected(unexpected(expected));
  const bool is_bounded = largest != std::numeric_limits<std::uint64_t>::max();
  return tl::unexpected(
      unexpected(is_bounded ? fmt::format("an integer from 0 to {}", largest) : "an unsigned integer"));
}

Result<std::int64_t> JsonReader::read_integer() {
  BITSNAP_ASSIGN(const JsonType type, peek());
  const std::size_t begin = at_;
  if (type == JsonType::number) {
    BITSNAP_ASSIGN(const JsonNumber number, lex_number());
    const bool is_positive = !number.negative && number.magnitude <= std::uint64_t{INT64_MAX};
    if (number.kind == JsonNumber::Kind::integer && (number.negative || is_positive)) {
      return static_cast<std::int64_t>(number.negative ? 0 - number.magnitude : number.magnitude);
    }
  }
  at_ = begin;
  return tl::unexpected(unexpected("an integer that fits in 64 bits with its sign"));
}

Result<void> JsonReader::read_object(FunctionRef<Result<void>(std::string_view)> read_member,
                                     std::string_view expected) {
  BITSNAP_ASSIGN(const JsonType type, peek());
  if (type != JsonType::object) return tl::unexpected(unexpected(expected));
  BITSNAP_TRY(enter());
  if (!accept('}')) {
    Keys keys;
    std::string unescaped;
    do {
      skip_space();
      if (at_ == text_.size() || text_[at_] != '"') return malformed();
      unescaped.clear();
      BITSNAP_ASSIGN(const std::string_view key, lex_text(unescaped));
      if (!accept(':')) return malformed();
      if (!keys.insert(key, unescaped.empty())) {
        return fail(ErrorKind::corrupt, fmt::format("JSON: key {} appears twice in an object", quote_name(key)));
      }
      BITSNAP_TRY(read_member(key));
    } while (accept(','));
    if (!accept('}')) return malformed();
  }
  --depth_;
  return {};
}

Result<void> JsonReader::read_array(FunctionRef<Result<void>()> read_item, std::string_view expected) {
  BITSNAP_ASSIGN(const JsonType type, peek());
  if (type != JsonType::array) return tl::unexpected(unexpected(expected));
  BITSNAP_TRY(enter());
  if (!accept(']')) {
    do {
      BITSNAP_TRY(read_item());
    } while (accept(','));
    if (!accept(']')) return malformed();
  }
  --depth_;
  return {};
}

Result<void> JsonReader::skip_value() {
  BITSNAP_ASSIGN(const JsonType type, peek());
  switch (type) {
    case JsonType::null: return read_null();
    case JsonType::boolean: BITSNAP_TRY(read_bool()); return {};
    case JsonType::number: BITSNAP_TRY(lex_number()); return {};
    case JsonType::string: {
      std::string unescaped;
      BITSNAP_TRY(lex_text(unescaped));
      return {};
    }
    // As deep as max_depth_ at most.
    case JsonType::array: return read_array([this] { return skip_value(); });
    case JsonType::object: return read_object([this](std::string_view) { return skip_value(); });
  }
  return {};
}

Result<std::string_view> JsonReader::read_text() {
  BITSNAP_ASSIGN(const JsonType type, peek());
  const std::size_t begin = at_;
  if (type != JsonType::array && type != JsonType::object) {
    BITSNAP_TRY(skip_value());
    return text_.substr(begin, at_ - begin);
  }
  std::size_t open = 0;
  while (at_ < text_.size()) {
    const char c = text_[at_++];
    if (c == '[' || c == '{') {
      ++open;
    } else if (c == ']' || c == '}') {
      if (--open == 0) return text_.substr(begin, at_ - begin);
    } else if (c == '"') {
      at_ += plain_characters(text_.substr(at_));
      while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2U : 1U;
      ++at_;
    }
  }
  at_ = text_.size();
  return tl::unexpected(malformed());
}

bool JsonReader::accept_plain_string(std::string_view& to) noexcept {
  if (at_ == text_.size() || text_[at_] != '"') return false;
  const std::size_t end = at_ + 1 + plain_characters(text_.substr(at_ + 1));
  if (end == text_.size() || text_[end] != '"') return false;
  to = text_.substr(at_ + 1, end - at_ - 1);
  at_ = end + 1;
  return true;
}

bool JsonReader::accept_plain_unsigned(std::uint64_t& to) noexcept {
  constexpr std::size_t kMostDigits = 18;
  std::size_t end = at_;
  std::uint64_t number = 0;
  while (end < text_.size() && is_digit(text_[end]) && end - at_ < kMostDigits) {
    number = 10 * number + static_cast<std::uint64_t>(text_[end++] - '0');
  }
  const bool ends_there = end < text_.size() && (text_[end] == ',' || text_[end] == ']' || text_[end] == '}');
  if (end == at_ || !ends_there || (text_[at_] == '0' && end - at_ > 1)) return false;
  to = number;
  at_ = end;
  return true;
}

Result<void> JsonReader::finish() {
  skip_space();
  return at_ == text_.size() ? Result<void>() : malformed();
}

Error JsonReader::unexpected(std::string_view expected) {
  const auto type = peek();
  if (!type) return type.error();
  std::string_view found;
  switch (*type) {
    case JsonType::null: found = "null"; break;
    case JsonType::boolean: found = "a boolean"; break;
    case JsonType::string: found = "a string"; break;
    case JsonType::array: found = "an array"; break;
    case JsonType::object: found = "an object"; break;
    case JsonType::number: {
      const auto number = lex_number();
      if (!number) return number.error();
      found = number_name(*number);
      break;
    }
  }
  return Error(ErrorKind::corrupt, fmt::format("expected {}, found {}", expected, found));
}

Result<std::string> JsonReader::lex_string() {
  std::string unescaped;
  BITSNAP_ASSIGN(const std::string_view text, lex_text(unescaped));
  if (unescaped.empty()) unescaped = text;
  return unescaped;
}

// The string's characters: in the text, or in `unescaped`, which was empty, if the string has escapes.
Result<std::string_view> JsonReader::lex_text(std::string& unescaped) {
  std::size_t begin = ++at_;  // of what has not been appended
  while (at_ < text_.size()) {
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') {
      const std::string_view rest = text_.substr(begin, at_ - begin);
      ++at_;
      if (unescaped.empty()) return rest;
      return unescaped.append(rest);
    }
    if (c == '\\') {
      unescaped.append(text_, begin, at_ - begin);
      ++at_;
      BITSNAP_TRY(lex_escape(unescaped));
      begin = at_;
      continue;
    }
    const std::size_t size = c < 0x20 ? 0 : c < 0x80 ? 1 : utf8_sequence(text_, at_);
    if (size == 0) return malformed();
    at_ += size;
  }
  return malformed();
}

Result<void> JsonReader::lex_escape(std::string& to) {
  if (at_ == text_.size()) return malformed();
  constexpr std::string_view kShort = "\"\\/bfnrt";
  constexpr std::string_view kMeaning = "\"\\/\b\f\n\r\t";
  if (const std::size_t found = kShort.find(text_[at_]); found != std::string_view::npos) {
    to.push_back(kMeaning[found]);
    ++at_;
    return {};
  }
  BITSNAP_ASSIGN(std::uint32_t code_point, lex_hex4());
  if (code_point >= 0xD800 && code_point < 0xE000) {
    if (code_point >= 0xDC00 || at_ == text_.size() || text_[at_] != '\\') return malformed();
    ++at_;
    BITSNAP_ASSIGN(const std::uint32_t low, lex_hex4());
    if (low < 0xDC00 || low >= 0xE000) return malformed();
    code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
  }
  append_utf8(to, code_point);
  return {};
}

// The "u" and four digits behind a backslash.
Result<std::uint32_t> JsonReader::lex_hex4() {
  if (text_.size() - at_ < 5 || text_[at_] != 'u') return malformed();
  ++at_;
  std::uint32_t number = 0;
  const char* const end = text_.data() + at_ + 4;
  const auto parsed = std::from_chars(text_.data() + at_, end, number, 16);
  if (parsed.ec != std::errc() || parsed.ptr != end) return malformed();
  at_ += 4;
  return number;
}

Result<JsonNumber> JsonReader::lex_number() {
  const std::size_t begin = at_;
  const bool negative = text_[at_] == '-';
  if (negative) ++at_;
  const std::size_t digits = at_;
  if (!skip_digits() || (text_[digits] == '0' && at_ - digits > 1)) return malformed();
  const std::size_t digits_end = at_;
  if (at_ < text_.size() && text_[at_] == '.') {
    ++at_;
    if (!skip_digits()) return malformed();
  }
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
    if (!skip_digits()) return malformed();
  }
  JsonNumber number;
  if (at_ == digits_end) {
    const auto parsed = std::from_chars(text_.data() + digits, text_.data() + digits_end, number.magnitude);
    number.negative = negative && number.magnitude != 0;
    const bool fits = parsed.ec == std::errc() && (!negative || number.magnitude <= std::uint64_t{1} << 63);
    if (fits) return number;
    number.kind = JsonNumber::Kind::huge_integer;
  } else {
    number.kind = JsonNumber::Kind::real;
  }
  number.real = parse_real(text_.substr(begin, at_ - begin));
  if (!std::isfinite(number.real)) return malformed();
  return number;
}

Result<void> JsonReader::lex_word(std::string_view word) {
  if (!text_.substr(at_).starts_with(word)) return malformed();
  at_ += word.size();
  return {};
}

// Whether there was at least one.
bool JsonReader::skip_digits() noexcept {
  const std::size_t begin = at_;
  while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  return at_ > begin;
}

void JsonReader::skip_space() noexcept { at_ = std::min(text_.find_first_not_of(" \t\n\r", at_), text_.size()); }

// Skips white space and then `c`; false if something else comes.
bool JsonReader::accept(char c) noexcept {
  skip_space();
  if (at_ == text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

Result<void> JsonReader::enter() {
  ++at_;
  if (++depth_ <= max_depth_) return {};
  return fail(ErrorKind::corrupt, fmt::format("JSON: nested deeper than {}", max_depth_));
}

tl::unexpected<Error> JsonReader::malformed() const {
  if (text_.starts_with("\xEF\xBB\xBF")) return fail(ErrorKind::corrupt, "JSON: begins with a byte order mark");
  return fail(ErrorKind::corrupt, fmt::format("JSON: malformed at byte {}", at_ + 1));
}

}  // namespace bitsnap::json
