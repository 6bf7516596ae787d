// Names that a snapshot can hold: valid UTF-8, and each once. A UniqueNames belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace bitsnap::interop {

// The text with "\xNN" in place of each byte that is not UTF-8.
[[nodiscard]] std::string escape_invalid_utf8(std::string_view text);

// Hands out each name once: the second "w" becomes "w#2".
class UniqueNames {
 public:
  [[nodiscard]] std::string add(std::string name);

 private:
  // The number to try next. A tree, because a hash map can be made to degenerate.
  std::map<std::string, std::uint64_t, std::less<>> next_;
};

}  // namespace bitsnap::interop
