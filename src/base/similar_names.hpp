// Which names a mistyped one may be meant as. A pure function; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bitsnap {

// Up to three of the names that are most similar to `name`, best first.
[[nodiscard]] std::vector<std::string> similar_names(const std::vector<std::string>& names, std::string_view name);

}  // namespace bitsnap
