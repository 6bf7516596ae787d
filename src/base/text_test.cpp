// Tests of printable(), quoted names and UTF-8.
#include <bitsnap/text.hpp>

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include <bitsnap/error.hpp>

#include "base/quote_name.hpp"
#include "base/utf8.hpp"

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

TEST(QuoteName, EscapesAndCutsBetweenCharacters) {
  EXPECT_EQ(quote_name("layers.0.weight"), "'layers.0.weight'");
  EXPECT_EQ(quote_name("a\x1b\xFF"), "'a\\x1b\\xff'");
  EXPECT_EQ(quote_tensor(""), "tensor ''");
  const std::string accent = "\xC3\xA9";
  std::string name;
  for (int i = 0; i < 100; ++i) name += accent;
  EXPECT_EQ(quote_name(name), "'" + name.substr(0, 60 * accent.size()) + "...'");
  EXPECT_EQ(quote_name(name.substr(0, 60 * accent.size())), "'" + name.substr(0, 60 * accent.size()) + "'");
}

TEST(Utf8, IsCheckedAtEveryPlaceOfAWord) {
  for (std::size_t at = 0; at < 20; ++at) {
    const std::string before(at, 'a');
    for (const std::string_view valid : {"\"", "\\", "\x7F", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}) {
      EXPECT_TRUE(is_utf8(before + std::string(valid))) << valid << " at " << at;
      EXPECT_TRUE(is_utf8(before + std::string(valid) + "0123456789")) << valid << " at " << at;
    }
    for (const std::string_view invalid : {"\x80", "\xFF", "\xC3", "\xC0\x9B", "\xED\xA0\x80", "\xF4\x90\x80\x80"}) {
      EXPECT_FALSE(is_utf8(before + std::string(invalid))) << at;
      EXPECT_FALSE(is_utf8(before + std::string(invalid) + "0123456789")) << at;
      EXPECT_FALSE(is_utf8("\xC3\xA9" + before + std::string(invalid) + "0123456789")) << at;
    }
  }
  EXPECT_TRUE(is_utf8(""));
}

TEST(Utf8, IsMadeFromAnyBytes) {
  EXPECT_EQ(replace_invalid_utf8("a\xFF\xC3\xA9\xE2\x82"), "a\xEF\xBF\xBD\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD");
}

}  // namespace
}  // namespace bitsnap
