// The typed tree: the small values that are stored with the tensors of a state. docs/spec/typed_tree.md.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

namespace bitsnap {

class Value;

using ValueList = std::vector<Value>;

struct ValueTuple {
  ValueList items;
};

// Entries in order. A key is none, a boolean, string, integer, double, bytes, a tuple of keys, or a typed value whose
// content is a key. No key occurs twice.
struct ValueDict {
  std::vector<std::pair<Value, Value>> entries;
};

struct ValueBytes {
  std::string bytes;
};

// An integer that does not fit in 64 bits: decimal, without leading zeros.
struct ValueBigInt {
  std::string decimal;
};

// A reference to a tensor of the same state.
struct ValueTensor {
  enum class Kind : std::uint8_t { tensor, array, scalar };  // what it is restored as: numpy array, numpy scalar

  std::size_t index = 0;  // in State::tensors
  Kind kind = Kind::tensor;
};

// A value of a named type, such as torch.dtype. The name has 1 to 64 of the characters A-Z a-z 0-9 _ and '.'. The
// library stores any name; the caller gives the names a meaning.
struct ValueTyped {
  std::string type;
  ValueList content;  // exactly one value
};

class Value {
 public:
  using Variant = std::variant<std::monostate, bool, std::int64_t, ValueBigInt, double, std::complex<double>,
                               std::string, ValueBytes, ValueList, ValueTuple, ValueDict, ValueTensor, ValueTyped>;

  Value() = default;  // none
  explicit Value(Variant variant) : variant_(std::move(variant)) {}

  [[nodiscard]] const Variant& get() const noexcept { return variant_; }
  [[nodiscard]] Variant& get() noexcept { return variant_; }

 private:
  Variant variant_;
};

// Writes the JSON of docs/spec/typed_tree.md. Doubles keep their bits. invalid_argument for strings that are not UTF-8,
// for keys that are not allowed or occur twice, for malformed integers and names of types, and for trees that exceed
// `tree_depth` or `tree_nodes` of the limits.
[[nodiscard]] Result<std::string> serialize_value(const Value& value, const DecodeLimits& limits = {});

// Reads the JSON of docs/spec/typed_tree.md. References to tensors must be below `tensor_count`. corrupt, with a
// message that names the place, for anything that the specification does not allow.
[[nodiscard]] Result<Value> parse_value(std::string_view json, std::size_t tensor_count,
                                        const DecodeLimits& limits = {});

}  // namespace bitsnap
