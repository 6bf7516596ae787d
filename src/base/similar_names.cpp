#include "base/similar_names.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace bitsnap {
namespace {

constexpr std::size_t kMost = 3;
// With more names, only those that contain the text or are part of it count as similar.
constexpr std::size_t kCompared = 1000;

// Levenshtein distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.at(b.size());
}

}  // namespace

std::vector<std::string> similar_names(const std::vector<std::string>& names, std::string_view name) {
  std::vector<std::pair<std::size_t, std::string>> similar;
  for (const std::string& other : names) {
    const bool is_part = other.find(name) != std::string::npos || name.find(other) != std::string_view::npos;
    if (!is_part && names.size() > kCompared) continue;
    const std::size_t far = edit_distance(other, name);
    if (is_part || far <= std::max(other.size(), name.size()) / 3) similar.emplace_back(far, other);
  }
  std::ranges::sort(similar);
  similar.resize(std::min(similar.size(), kMost));
  std::vector<std::string> closest;
  for (auto& [far, other] : similar) closest.push_back(std::move(other));
  return closest;
}

}  // namespace bitsnap
