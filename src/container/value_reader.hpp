// Reads a typed tree from JSON: docs/spec/typed_tree.md. Recurses, kMaxTreeDepth levels deep at most.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/tensor.hpp>
#include <bitsnap/value.hpp>

namespace bitsnap::container {

// Deepest nesting that the format allows; a single value is one deep.
inline constexpr std::size_t kMaxTreeDepth = 128;

// Errors name the place within the tree. References must be to one of `tensors`, those of numpy scalars to one without
// dimensions.
[[nodiscard]] Result<Value> parse_tree(std::string_view json, std::span<const TensorInfo> tensors,
                                       const DecodeLimits& limits);

}  // namespace bitsnap::container
