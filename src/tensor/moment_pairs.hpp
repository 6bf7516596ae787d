// Pairs Adam's first moments with their second moments by the names that frameworks give them. Any thread may call it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <bitsnap/tensor.hpp>

namespace bitsnap::tensor {

// For each tensor, the index of the tensor with its second moments. nullopt unless the tensor is an F32 first moment
// and an F32 tensor has the same number of elements and the same name except for the part that names the moment.
// Aliases have no pair.
[[nodiscard]] std::vector<std::optional<std::size_t>> pair_moments(std::span<const TensorInfo> tensors);

}  // namespace bitsnap::tensor
