// The typed tree: the values that travel with the tensors of a state. docs/spec/typed_tree.md.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
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

// Entries in order. A key is none, a boolean, string, integer, double, bytes, a tuple of keys, or a typed value made of
// a key; no key stands twice.
struct ValueDict {
  std::vector<std::pair<Value, Value>> entries;
};

struct ValueBytes {
  std::string bytes;
};

// An integer beyond 64 bits: decimal, no leading zeros.
struct ValueBigInt {
  std::string decimal;
};

// A reference to a tensor of the same state.
struct ValueTensor {
  enum class Kind : std::uint8_t { tensor, array, scalar };  // as what it is given back

  std::size_t index = 0;
  Kind kind = Kind::tensor;
};

// A value of a type of its own, such as a torch.dtype: the name of the type, 1 to 64 of A-Z a-z 0-9 _ and '.', and the
// one value that it is made of. The library stores any name; what the names stand for is the caller's business.
struct ValueTyped {
  std::string type;
  ValueList content;  // exactly one
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

// The JSON of docs/spec/typed_tree.md. Doubles keep their bits. Fails with invalid_argument for strings that are not
// UTF-8, keys that are not allowed or stand twice, malformed integers and names of types, and trees that are nested
// deeper or hold more values than the limits.
[[nodiscard]] Result<std::string> serialize_value(const Value& value, const DecodeLimits& limits = {});

// Fails with corrupt, naming the place, for anything that docs/spec/typed_tree.md does not allow. References must be
// below `tensor_count`.
[[nodiscard]] Result<Value> parse_value(std::string_view json, std::size_t tensor_count,
                                        const DecodeLimits& limits = {});

}  // namespace bitsnap
