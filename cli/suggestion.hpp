// "Did you mean ...?" for a mistyped name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bitsnap::cli {

// The candidate that is at most a third of its letters away from `typed`, or that `typed` begins.
[[nodiscard]] std::optional<std::string> closest(std::string_view typed, const std::vector<std::string>& candidates);

}  // namespace bitsnap::cli
