#include "os/plain_name.hpp"

#include <algorithm>
#include <cstddef>

namespace bitsnap::os {

bool is_plain_name(std::string_view name) noexcept {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

bool is_plain_path(std::string_view path) noexcept {
  for (;;) {
    const std::size_t end = std::min(path.find('/'), path.size());
    if (!is_plain_name(path.substr(0, end))) return false;
    if (end == path.size()) return true;
    path.remove_prefix(end + 1);
  }
}

}  // namespace bitsnap::os
