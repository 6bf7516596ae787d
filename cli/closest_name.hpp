// What a mistyped word may be meant as.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bitsnap::cli {

// The candidate that is at most a third of its letters away from `typed`, has its letters in another order, or begins
// with it.
[[nodiscard]] std::optional<std::string> closest_name(std::string_view typed,
                                                      const std::vector<std::string>& candidates);

}  // namespace bitsnap::cli
