// Compares the names of tensors that belong to one parameter in different roles.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bitsnap::tensor {

// Between the parts of a name: of paths of keys and of files, and before the offset of a shard, as in "exp_avg[0,64]".
constexpr std::string_view kNameSeparators = "./[";

// The parts of a name except those that state the role.
[[nodiscard]] std::vector<std::string_view> name_parts(std::string_view name);

// The number of parts that two names have in common, counted from the end.
[[nodiscard]] std::size_t likeness(std::string_view one, std::string_view other);

// The name without the part that names the moment: equal for both moments of a parameter.
[[nodiscard]] std::string without_moment(std::string_view name);

// The name without the parts that state the role.
[[nodiscard]] std::string bare_name(std::string_view name);

// The bare name of the weights of which this tensor is an average, as trainers that keep one name it; nullopt if the
// name says nothing of an average.
[[nodiscard]] std::optional<std::string> name_of_averaged(std::string_view name);

}  // namespace bitsnap::tensor
