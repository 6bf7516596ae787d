// Reads a typed tree from JSON: docs/spec/typed_tree.md. Recurses, kMaxTreeDepth levels deep at most.
#pragma once

#include <cstddef>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/value.hpp>

#include "container/json_reader.hpp"

namespace bitsnap::container {

// Deepest nesting that the format allows; a single value is one deep.
inline constexpr std::size_t kMaxTreeDepth = 128;

// Reads the next value as a typed tree. Errors name the place within the tree. `references` receives all references to
// tensors, in their order; the caller checks that the tensors exist.
[[nodiscard]] Result<Value> read_tree(JsonReader& in, const DecodeLimits& limits, std::vector<ValueTensor>& references);

}  // namespace bitsnap::container
