// Choosing tensors of a state by their names, and other names for them.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap::cli {

struct TensorSelection {
  std::vector<std::string> only;     // patterns of names, such as "model.*"; empty: all tensors
  std::optional<std::string> strip;  // a prefix that the names lose

  [[nodiscard]] bool empty() const noexcept { return only.empty() && !strip; }
};

// Keeps the chosen tensors alone, without the values beside them. not_found if a pattern fits none, invalid_argument if
// two tensors get one name, or one gets none.
[[nodiscard]] Result<void> select_tensors(State& state, const TensorSelection& selection);

// OLD and NEW of "OLD=NEW"; invalid_argument without a "=".
[[nodiscard]] Result<std::pair<std::string, std::string>> parse_mapping(const std::string& text);

// Replaces a prefix of the names: of the mappings, the first whose OLD a name begins with applies. not_found if one
// applies to no name, invalid_argument if two tensors get one name.
[[nodiscard]] Result<void> rename_tensors(State& state, const std::vector<std::string>& mappings);

}  // namespace bitsnap::cli
