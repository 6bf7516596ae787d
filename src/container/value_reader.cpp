// The typed tree from JSON tokens, and parse_value(). docs/spec/typed_tree.md.
#include "container/value_reader.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "container/json_text.hpp"
#include "container/value_text.hpp"

namespace bitsnap::container {
namespace {

using Type = JsonToken::Type;

Result<Value> parse_int_text(std::string text) {
  if (!is_decimal(text)) return fail(ErrorKind::corrupt, fmt::format("{} is not a decimal integer", quote_name(text)));
  if (const std::optional<std::int64_t> small = to_int64(text)) {
    if (is_plain_integer(*small)) {
      return fail(ErrorKind::corrupt, fmt::format("the integer {} is to be written as a number", *small));
    }
    return Value(*small);
  }
  return Value(ValueBigInt{std::move(text)});
}

Result<Value> parse_f64_text(std::string_view text) {
  const std::optional<std::uint64_t> bits = parse_hex(text);
  if (!bits)
    return fail(ErrorKind::corrupt, fmt::format("{} is not 16 lower-case hexadecimal digits", quote_name(text)));
  const double number = std::bit_cast<double>(*bits);
  if (std::isfinite(number)) {
    return fail(ErrorKind::corrupt, fmt::format("the finite double {} is to be written as a number", text));
  }
  return Value(number);
}

bool may_be_key(const Value& value) noexcept {
  struct Visitor {
    bool operator()(const ValueTuple& tuple) const noexcept {
      for (const Value& item : tuple.items) {
        if (!may_be_key(item)) return false;
      }
      return true;
    }
    bool operator()(const std::complex<double>&) const noexcept { return false; }
    bool operator()(const ValueList&) const noexcept { return false; }
    bool operator()(const ValueDict&) const noexcept { return false; }
    bool operator()(const ValueTensor&) const noexcept { return false; }
    bool operator()(const std::monostate&) const noexcept { return true; }
    bool operator()(const bool&) const noexcept { return true; }
    bool operator()(const std::int64_t&) const noexcept { return true; }
    bool operator()(const ValueBigInt&) const noexcept { return true; }
    bool operator()(const double&) const noexcept { return true; }
    bool operator()(const std::string&) const noexcept { return true; }
    bool operator()(const ValueBytes&) const noexcept { return true; }
  };
  return std::visit(Visitor{}, value.get());
}

}  // namespace

Result<void> ValueReader::take(JsonToken& token) {
  Result<void> taken = step(token);
  if (taken) return taken;
  return tl::unexpected(std::move(taken).error().within(place()));
}

Result<void> ValueReader::step(JsonToken& token) {
  if (!frames_.empty()) {
    const Frame::Kind kind = frames_.back().kind;
    if (kind == Frame::Kind::object) return take_in_object(token);
    if (token.is(Type::end_array)) return end_array();
    if (kind == Frame::Kind::dict) {
      if (!token.is(Type::begin_array)) return tl::unexpected(unexpected_token("a pair of key and value", token));
      return open(Frame::Kind::pair);
    }
  }
  switch (token.type) {
    case Type::null: return complete(Value());
    case Type::boolean: return complete(Value(token.boolean));
    case Type::integer: {
      const auto magnitude = static_cast<std::int64_t>(token.magnitude);
      if (token.magnitude > kMaxPlainInteger) {
        return fail(ErrorKind::corrupt, fmt::format("the integer {}{} is too large for a number",
                                                    token.negative ? "-" : "", token.magnitude));
      }
      return complete(Value(token.negative ? -magnitude : magnitude));
    }
    case Type::real: return complete(Value(token.real));
    case Type::string: return complete(Value(std::move(token.text)));
    case Type::begin_array: return open(Frame::Kind::list);
    case Type::begin_object: return open(Frame::Kind::object);
    case Type::huge_integer:
    case Type::key:
    case Type::end_array:
    case Type::end_object: break;
  }
  return tl::unexpected(unexpected_token("a value", token));
}

Result<void> ValueReader::take_in_object(JsonToken& token) {
  Frame& frame = frames_.back();
  if (token.is(Type::end_object)) {
    if (!frame.value) return fail(ErrorKind::corrupt, "an object without a key");
    Value value = std::move(*frame.value);
    frames_.pop_back();
    // The parts of a complex number are no values of their own.
    if (frames_.empty() || frames_.back().kind != Frame::Kind::complex) --depth_;
    return complete(std::move(value));
  }
  if (!token.is(Type::key)) return take_tagged(token);
  if (!frame.tag.empty()) return fail(ErrorKind::corrupt, "an object has more than one key");
  static constexpr std::array<std::string_view, 9> kTags = {"int",  "f64",    "complex", "bytes", "tuple",
                                                            "dict", "tensor", "array",   "scalar"};
  for (const std::string_view tag : kTags) {
    if (token.text == tag) {
      frame.tag = std::move(token.text);
      return {};
    }
  }
  return fail(ErrorKind::corrupt, fmt::format("no value is called {}", quote_name(token.text)));
}

// The value that stands beside the key of an object.
Result<void> ValueReader::take_tagged(JsonToken& token) {
  Frame& frame = frames_.back();
  const std::string& tag = frame.tag;
  if (tag == "int" || tag == "f64" || tag == "bytes") {
    if (!token.is(Type::string)) return tl::unexpected(unexpected_token("a string", token));
    if (tag == "int") {
      BITSNAP_ASSIGN(frame.value, parse_int_text(std::move(token.text)));
    } else if (tag == "f64") {
      BITSNAP_ASSIGN(frame.value, parse_f64_text(token.text));
    } else {
      std::optional<std::string> bytes = parse_base64(token.text);
      if (!bytes) return fail(ErrorKind::corrupt, "bytes are not padded base64");
      frame.value = Value(ValueBytes{std::move(*bytes)});
    }
    return {};
  }
  if (tag == "tensor" || tag == "array" || tag == "scalar") {
    if (!token.is_unsigned()) return tl::unexpected(unexpected_token("the index of a tensor", token));
    const ValueTensor reference{static_cast<std::size_t>(token.magnitude), tag == "tensor" ? ValueTensor::Kind::tensor
                                                                           : tag == "array"
                                                                               ? ValueTensor::Kind::array
                                                                               : ValueTensor::Kind::scalar};
    references_.push_back(reference);
    frame.value = Value(reference);
    return {};
  }
  if (!token.is(Type::begin_array)) return tl::unexpected(unexpected_token("an array", token));
  return open(tag == "tuple" ? Frame::Kind::tuple : tag == "dict" ? Frame::Kind::dict : Frame::Kind::complex);
}

Result<void> ValueReader::end_array() {
  if (frames_.back().kind == Frame::Kind::pair) return end_pair();
  Frame frame = std::move(frames_.back());
  if (frame.kind == Frame::Kind::list) {
    frames_.pop_back();
    --depth_;
    return complete(Value(std::move(frame.items)));
  }
  Value value;
  if (frame.kind == Frame::Kind::tuple) {
    value = Value(ValueTuple{std::move(frame.items)});
  } else if (frame.kind == Frame::Kind::dict) {
    value = Value(ValueDict{std::move(frame.entries)});
  } else {
    if (frame.items.size() != 2) return fail(ErrorKind::corrupt, "a complex number has two parts");
    value = Value(std::complex<double>(std::get<double>(frame.items[0].get()), std::get<double>(frame.items[1].get())));
  }
  frames_.pop_back();
  frames_.back().value = std::move(value);
  return {};
}

Result<void> ValueReader::end_pair() {
  if (frames_.back().items.size() != 2) return fail(ErrorKind::corrupt, "an entry of a dict has a key and a value");
  ValueList items = std::move(frames_.back().items);
  frames_.pop_back();
  frames_.back().entries.emplace_back(std::move(items[0]), std::move(items[1]));
  return {};
}

Result<void> ValueReader::complete(Value value) {
  if (frames_.empty()) {
    BITSNAP_TRY(count_value());
    root_ = std::move(value);
    return {};
  }
  Frame& frame = frames_.back();
  if (frame.kind == Frame::Kind::complex) {
    if (!std::holds_alternative<double>(value.get())) {
      return fail(ErrorKind::corrupt, "a complex number has a part that is no double");
    }
    if (frame.items.size() == 2) return fail(ErrorKind::corrupt, "a complex number has two parts");
    frame.items.push_back(std::move(value));
    return {};
  }
  BITSNAP_TRY(count_value());
  if (frame.kind == Frame::Kind::pair) {
    if (frame.items.size() == 2) return fail(ErrorKind::corrupt, "an entry of a dict has a key and a value");
    if (frame.items.empty()) {
      if (!may_be_key(value)) return fail(ErrorKind::corrupt, "a key of a dict is of a kind that keys cannot be");
      BITSNAP_ASSIGN(std::string key, serialize_value(value, limits_));
      Frame& dict = frames_[frames_.size() - 2];
      if (!dict.keys.insert(key).second) {
        return fail(ErrorKind::corrupt, fmt::format("key {} stands twice in a dict", quote_name(key)));
      }
    }
  }
  frame.items.push_back(std::move(value));
  return {};
}

Result<void> ValueReader::open(Frame::Kind kind) {
  // Tuples, dicts and complex numbers were counted with the object that holds them.
  const bool is_value = kind == Frame::Kind::list || kind == Frame::Kind::object;
  const bool is_part = !frames_.empty() && frames_.back().kind == Frame::Kind::complex;
  if (is_part && kind != Frame::Kind::object) {
    return fail(ErrorKind::corrupt, "a complex number has a part that is no double");
  }
  if (is_value && !is_part) {
    if (depth_ >= kMaxTreeDepth) {
      return fail(ErrorKind::corrupt, fmt::format("nested deeper than {}", kMaxTreeDepth));
    }
    if (depth_ >= limits_.tree_depth) {
      return fail(ErrorKind::resource_exhausted, fmt::format("nested deeper than the limit of {}", limits_.tree_depth));
    }
    ++depth_;
  }
  frames_.emplace_back().kind = kind;
  return {};
}

Result<void> ValueReader::count_value() {
  if (depth_ >= kMaxTreeDepth) return fail(ErrorKind::corrupt, fmt::format("nested deeper than {}", kMaxTreeDepth));
  if (depth_ >= limits_.tree_depth) {
    return fail(ErrorKind::resource_exhausted, fmt::format("nested deeper than the limit of {}", limits_.tree_depth));
  }
  if (++nodes_ > limits_.tree_nodes) {
    return fail(ErrorKind::resource_exhausted, fmt::format("more values than the limit of {}", limits_.tree_nodes));
  }
  return {};
}

std::string ValueReader::place() const {
  constexpr std::size_t kLongestPlace = 400;
  std::string text = "tree";
  for (const Frame& frame : frames_) {
    if (text.size() > kLongestPlace) return text + "...";
    if (frame.kind == Frame::Kind::list || frame.kind == Frame::Kind::tuple) {
      text += fmt::format("[{}]", frame.items.size());
    } else if (frame.kind == Frame::Kind::pair && !frame.items.empty()) {
      const Result<std::string> key = serialize_value(frame.items.front(), limits_);
      text += fmt::format("[{}]", key ? quote_name(*key) : "?");
    }
  }
  return text;
}

namespace {

class ValueSink final : public JsonSink {
 public:
  explicit ValueSink(const DecodeLimits& limits) : reader(limits) {}

  Result<void> take(JsonToken& token) override { return reader.take(token); }

  ValueReader reader;
};

}  // namespace
}  // namespace bitsnap::container

namespace bitsnap {

Result<Value> parse_value(std::string_view json, std::size_t tensor_count, const DecodeLimits& limits) {
  return no_throw("typed tree", [&]() -> Result<Value> {
    container::ValueSink sink(limits);
    BITSNAP_TRY(container::read_json(json, sink));
    for (const ValueTensor& reference : sink.reader.references()) {
      if (reference.index >= tensor_count) {
        return fail(ErrorKind::corrupt, fmt::format("tree: refers to tensor {} of {}", reference.index, tensor_count));
      }
    }
    return sink.reader.take_value();
  });
}

}  // namespace bitsnap
