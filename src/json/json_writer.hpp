// Writes JSON text without white space, value by value, with commas. Checks nothing: strings should be UTF-8, numbers
// finite, keys unique, and calls properly nested.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "json/json_text.hpp"

namespace bitsnap::json {

class JsonWriter {
 public:
  explicit JsonWriter(JsonEscapes escapes = JsonEscapes::all_short) : escapes_(escapes) {}

  void begin_object() { append('{'); }
  void end_object() { text_.push_back('}'); }
  void begin_array() { append('['); }
  void end_array() { text_.push_back(']'); }

  // Of the next value, in an object.
  void key(std::string_view name) {
    string(name);
    text_.push_back(':');
  }

  void string(std::string_view text) {
    separate();
    append_json_string(text_, text, escapes_);
  }
  void number(std::uint64_t value) { json(std::to_string(value)); }
  void number(std::int64_t value) { json(std::to_string(value)); }
  void number(double value) {
    separate();
    append_double(text_, value);
  }
  void boolean(bool value) { json(value ? "true" : "false"); }
  void null() { json("null"); }
  // Precondition: `text` is one JSON value.
  void json(std::string_view text) {
    separate();
    text_.append(text);
  }

  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  [[nodiscard]] std::string take_text() noexcept { return std::move(text_); }

 private:
  void separate() {
    if (!text_.empty() && text_.back() != '{' && text_.back() != '[' && text_.back() != ':') text_.push_back(',');
  }
  void append(char bracket) {
    separate();
    text_.push_back(bracket);
  }

  std::string text_;
  JsonEscapes escapes_;
};

}  // namespace bitsnap::json
