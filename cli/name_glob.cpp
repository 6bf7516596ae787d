// Patterns for names.
#include "cli/name_glob.hpp"

#include <cstddef>

namespace bitsnap::cli {

bool matches_glob(std::string_view pattern, std::string_view name) noexcept {
  std::size_t at = 0;
  std::size_t wanted = 0;
  // The last star, and the character that what follows it was last tried from.
  std::size_t star = std::string_view::npos;
  std::size_t tried = 0;
  while (at < name.size()) {
    if (wanted < pattern.size() && pattern[wanted] == '*') {
      star = wanted++;
      tried = at;
    } else if (wanted < pattern.size() && (pattern[wanted] == '?' || pattern[wanted] == name[at])) {
      ++wanted;
      ++at;
    } else if (star != std::string_view::npos) {
      wanted = star + 1;
      at = ++tried;
    } else {
      return false;
    }
  }
  while (wanted < pattern.size() && pattern[wanted] == '*') {
    ++wanted;
  }
  return wanted == pattern.size();
}

}  // namespace bitsnap::cli
