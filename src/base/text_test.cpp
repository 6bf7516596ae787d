// Tests of printable().
#include <bitsnap/text.hpp>

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include <bitsnap/error.hpp>

namespace bitsnap {
namespace {

TEST(Printable, EscapesWhatDisturbsATerminalOrAReader) {
  for (const auto& [text, expected] : std::initializer_list<std::pair<std::string_view, std::string_view>>{
           {"\x1b[2J", "\\x1b[2J"},
           {"a\nb\t\x7f", "a\\x0ab\\x09\\x7f"},
           {std::string_view("\0", 1), "\\x00"},
           {"\xC2\x9B", "\\x9b"},                // U+009B, which some terminals take for ESC [
           {"\xC2\xAD", "\\xad"},                // soft hyphen
           {"\xE2\x80\x8B", "\\u200b"},          // zero-width space
           {"\xE2\x80\x8F", "\\u200f"},          // right-to-left mark
           {"\xE2\x80\xAA", "\\u202a"},          // left-to-right embedding
           {"\xE2\x80\xAE", "\\u202e"},          // right-to-left override
           {"\xE2\x81\xA6", "\\u2066"},          // left-to-right isolate
           {"\xE2\x81\xA9", "\\u2069"},          // pop directional isolate
           {"\xEF\xBB\xBF", "\\ufeff"},          // byte order mark
           {"\xF3\xA0\x81\x81", "\\U000e0041"},  // tag
           {"\xFF\xC3", "\\xff\\xc3"},           // not UTF-8
           {"\xC0\x9B", "\\xc0\\x9b"},           // overlong
           {"\xED\xA0\x80", "\\xed\\xa0\\x80"},  // a surrogate
       }) {
    EXPECT_EQ(printable(text), expected);
    EXPECT_EQ(printable(printable(text)), expected);
    EXPECT_FALSE(is_printable(text)) << expected;
    EXPECT_TRUE(is_printable(expected));
  }
}

TEST(Printable, KeepsTextInAnyScript) {
  for (const std::string_view text : {"", "layers.0.weight", "\xC3\xA9 \xE5\xB1\x82 \xD7\xA9 \xF0\x9F\x98\x80",
                                      "\xE2\x80\x8A", "\xE2\x80\xA7", "\xE2\x80\xAF", "back\\slash"}) {
    EXPECT_EQ(printable(text), text);
    EXPECT_TRUE(is_printable(text));
  }
}

TEST(Printable, KeepsWhatTheCallerWants) { EXPECT_EQ(printable("a\nb\r\n", "\n"), "a\nb\\x0d\n"); }

TEST(Printable, IsEveryMessageOfAnError) {
  const Error error = Error(ErrorKind::io, "open a\x1b[2J\xE2\x80\xAE: no\xFF").within("run\n\xE2\x81\xA6");
  EXPECT_EQ(error.message(), "run\\x0a\\u2066: open a\\x1b[2J\\u202e: no\\xff");
}

}  // namespace
}  // namespace bitsnap
