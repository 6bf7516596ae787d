#include "interop/container/unique_names.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <bitsnap/text.hpp>

namespace bitsnap::interop {

std::string escape_invalid_utf8(std::string_view text) {
  std::string escaped;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = utf8_sequence(text, at);
    if (bytes > 0) {
      escaped += text.substr(at, bytes);
    } else {
      escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
    }
    at += std::max<std::size_t>(bytes, 1);
  }
  return escaped;
}

std::string UniqueNames::add(std::string name) {
  const auto [found, is_new] = next_.try_emplace(name, 2);
  if (is_new) return name;
  for (;;) {
    std::string candidate = fmt::format("{}#{}", name, found->second++);
    if (next_.try_emplace(candidate, 2).second) return candidate;
  }
}

}  // namespace bitsnap::interop
