// Checks and repairs UTF-8. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace bitsnap {

// Whether the text is UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
[[nodiscard]] bool is_utf8(std::string_view text) noexcept;

// The text with U+FFFD in place of each byte that is not UTF-8.
[[nodiscard]] std::string replace_invalid_utf8(std::string_view text);

}  // namespace bitsnap
