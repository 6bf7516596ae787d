// Which second moments of Adam stand beside which first ones: by their names, as frameworks give them. Any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <bitsnap/tensor.hpp>

namespace bitsnap::tensor {

// Of each tensor the one that holds its second moments. nullopt: it is no first moment of F32, or there is none of F32
// with as many elements and the same name but for the part that says which moment it is. Aliases are nobody's.
[[nodiscard]] std::vector<std::optional<std::size_t>> pair_moments(std::span<const TensorInfo> tensors);

}  // namespace bitsnap::tensor
