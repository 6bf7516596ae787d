#include "cli/closest_name.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace bitsnap::cli {
namespace {

// Letters to insert, delete or replace.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<std::string> closest_name(std::string_view typed, const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  std::size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    if (typed.size() >= 2 && candidate.starts_with(typed)) return candidate;
    const bool is_turned = typed.size() >= 3 && std::ranges::is_permutation(typed, candidate);  // "lgo"
    const std::size_t distance = edit_distance(typed, candidate);
    if ((is_turned || distance <= std::max<std::size_t>(1, candidate.size() / 3)) &&
        (!best || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace bitsnap::cli
