// What tensors' names have in common that are the same parameter in different roles.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace bitsnap::tensor {

// The parts of a name, without those that say what the tensor is to the training.
[[nodiscard]] std::vector<std::string_view> name_parts(std::string_view name);

// How many parts two names have in common, from the last on.
[[nodiscard]] std::size_t likeness(std::string_view one, std::string_view other);

// A name without the part that says which moment it is: the same for both moments of a parameter.
[[nodiscard]] std::string without_moment(std::string_view name);

// A name without what it says of the tensor's role.
[[nodiscard]] std::string bare_name(std::string_view name);

}  // namespace bitsnap::tensor
