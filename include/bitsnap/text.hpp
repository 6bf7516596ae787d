// Text from files, paths and other processes, made harmless for people and their terminals. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bitsnap {

// Length of the UTF-8 sequence that begins at text[at]; 0 if there is none. Precondition: at < text.size().
[[nodiscard]] std::size_t utf8_sequence(std::string_view text, std::size_t at) noexcept;

// The text with escapes, as Python writes them ("\x1b", "\u202e"), in place of
// - control characters, except those in `kept`;
// - characters that have no width, or that change the direction of text, and line and paragraph separators;
// - bytes that are not UTF-8.
// Every message of an Error is printable.
[[nodiscard]] std::string printable(std::string_view text, std::string_view kept = {});

// Whether printable() changes nothing.
[[nodiscard]] bool is_printable(std::string_view text) noexcept;

}  // namespace bitsnap
