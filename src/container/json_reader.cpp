// JSON tokens from nlohmann-json's event parser, with what that parser leaves to its users: byte order marks, bytes of
// zero (it takes one for the end), repeated keys, depth.
#include "container/json_reader.hpp"

#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/try.hpp"
#include "container/json_text.hpp"

namespace bitsnap::container {
namespace {

using Json = nlohmann::json;

class Events final : public nlohmann::json_sax<Json> {
 public:
  explicit Events(JsonSink& sink) : sink_(sink) {}

  bool null() override { return pass(JsonToken::Type::null); }

  bool boolean(bool value) override {
    token_.boolean = value;
    return pass(JsonToken::Type::boolean);
  }

  bool number_integer(number_integer_t value) override {
    token_.negative = value < 0;
    token_.magnitude = value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
    return pass(JsonToken::Type::integer);
  }

  bool number_unsigned(number_unsigned_t value) override {
    token_.negative = false;
    token_.magnitude = value;
    return pass(JsonToken::Type::integer);
  }

  bool number_float(number_float_t value, const string_t& text) override {
    // An integer that does not fit is reported as a float. The decimal point may be that of the locale.
    if (text.find_first_not_of("-0123456789") == string_t::npos) return pass(JsonToken::Type::huge_integer);
    token_.real = value;
    return pass(JsonToken::Type::real);
  }

  bool string(string_t& value) override {
    token_.text = std::move(value);
    return pass(JsonToken::Type::string);
  }

  bool binary(binary_t&) override { return stop(Error(ErrorKind::internal, "JSON: binary value")); }

  bool start_object(std::size_t) override {
    if (!deepen()) return false;
    keys_.emplace_back();
    return pass(JsonToken::Type::begin_object);
  }

  bool key(string_t& value) override {
    if (!keys_.back().insert(value).second) {
      return stop(Error(ErrorKind::corrupt, fmt::format("JSON: key {} stands twice in an object", quote_name(value))));
    }
    token_.text = std::move(value);
    return pass(JsonToken::Type::key);
  }

  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return pass(JsonToken::Type::end_object);
  }

  bool start_array(std::size_t) override { return deepen() && pass(JsonToken::Type::begin_array); }

  bool end_array() override {
    --depth_;
    return pass(JsonToken::Type::end_array);
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return stop(Error(ErrorKind::corrupt, fmt::format("JSON: malformed at byte {}", position)));
  }

  [[nodiscard]] std::optional<Error> take_error() noexcept { return std::exchange(error_, std::nullopt); }

 private:
  bool pass(JsonToken::Type type) {
    token_.type = type;
    Result<void> taken = sink_.take(token_);
    return taken ? true : stop(std::move(taken).error());
  }

  bool stop(Error error) {
    error_ = std::move(error);
    return false;
  }

  bool deepen() {
    if (++depth_ <= kMaxJsonDepth) return true;
    return stop(Error(ErrorKind::corrupt, fmt::format("JSON: nested deeper than {}", kMaxJsonDepth)));
  }

  JsonSink& sink_;
  JsonToken token_;
  // The keys of the objects that are open. Ordered sets: no choice of keys makes them slow.
  std::vector<std::set<std::string>> keys_;
  std::size_t depth_ = 0;
  std::optional<Error> error_;
};

}  // namespace

std::string_view json_token_name(const JsonToken& token) noexcept {
  switch (token.type) {
    case JsonToken::Type::null: return "null";
    case JsonToken::Type::boolean: return "a boolean";
    case JsonToken::Type::integer: return token.negative ? "a negative integer" : "an integer";
    case JsonToken::Type::huge_integer: return "an integer beyond 64 bits";
    case JsonToken::Type::real: return "a number with a fraction or an exponent";
    case JsonToken::Type::string: return "a string";
    case JsonToken::Type::key: return "a key";
    case JsonToken::Type::begin_array: return "an array";
    case JsonToken::Type::end_array: return "the end of an array";
    case JsonToken::Type::begin_object: return "an object";
    case JsonToken::Type::end_object: return "the end of an object";
  }
  return "nothing";
}

Error unexpected_token(std::string_view expected, const JsonToken& found) {
  return Error(ErrorKind::corrupt, fmt::format("expected {}, found {}", expected, json_token_name(found)));
}

Result<void> read_json(std::string_view text, JsonSink& sink) {
  if (text.starts_with("\xEF\xBB\xBF")) return fail(ErrorKind::corrupt, "JSON: begins with a byte order mark");
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return fail(ErrorKind::corrupt, fmt::format("JSON: malformed at byte {}", zero + 1));
  }
  Events events(sink);
  const bool whole = Json::sax_parse(text.begin(), text.end(), &events);
  if (std::optional<Error> error = events.take_error()) return tl::unexpected(std::move(*error));
  if (!whole) return fail(ErrorKind::corrupt, "JSON: malformed");
  return {};
}

}  // namespace bitsnap::container
