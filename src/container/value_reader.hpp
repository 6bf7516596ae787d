// Builds a typed tree from JSON tokens: docs/spec/typed_tree.md. Does not recurse.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/value.hpp>

#include "container/json_reader.hpp"

namespace bitsnap::container {

// Deepest nesting that the format allows; a single value is one deep.
inline constexpr std::size_t kMaxTreeDepth = 128;

class ValueReader {
 public:
  explicit ValueReader(const DecodeLimits& limits) : limits_(limits) {}

  // Takes the next token of the value; not to be called once it is complete. Errors name the place within the value.
  [[nodiscard]] Result<void> take(JsonToken& token);

  [[nodiscard]] bool is_complete() const noexcept { return root_.has_value(); }
  // Precondition: is_complete().
  [[nodiscard]] Value take_value() { return std::move(*root_); }

  // All references to tensors, in the order they came, to be held against the tensors there are.
  [[nodiscard]] const std::vector<ValueTensor>& references() const noexcept { return references_; }

 private:
  // What is open, from the outside in. An object with its tag holds the array that the tag asks for.
  struct Frame {
    enum class Kind : std::uint8_t { list, object, tuple, dict, pair, complex };

    Kind kind = Kind::list;
    ValueList items;                               // list, tuple, pair, complex
    std::vector<std::pair<Value, Value>> entries;  // dict
    std::set<std::string> keys;                    // dict: its keys as JSON
    std::string tag;                               // object; empty before its key came
    std::optional<Value> value;                    // object; once its value is complete
  };

  Result<void> step(JsonToken& token);
  Result<void> take_in_object(JsonToken& token);
  Result<void> take_tagged(JsonToken& token);
  Result<void> end_array();
  Result<void> end_pair();
  Result<void> complete(Value value);
  Result<void> open(Frame::Kind kind);
  Result<void> count_value();
  [[nodiscard]] std::string place() const;

  const DecodeLimits& limits_;
  std::vector<Frame> frames_;
  std::size_t depth_ = 0;  // values that are open
  std::uint64_t nodes_ = 0;
  std::vector<ValueTensor> references_;
  std::optional<Value> root_;
};

}  // namespace bitsnap::container
