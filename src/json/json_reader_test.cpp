// Tests of JsonReader against nlohmann-json: both accept the same texts and read the same values. Other tests of this
// layer do not use nlohmann-json.
#include "json/json_reader.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "json/json_text.hpp"

namespace bitsnap::json {
namespace {

bool is_accepted(const std::string& text) {
  return read_whole_json(text, [](JsonReader& in) { return in.skip_value(); }).has_value();
}

TEST(JsonReader, AcceptsWhatNlohmannAccepts) {
  // Keys differ in more than one byte, so no change of one byte repeats a key, which only JsonReader rejects.
  const std::vector<std::string> texts = {
      R"({"alpha":[1,-2,0.5,1e3,-1E-2],"beta":{"c":null,"dd":true},"gamma":"x\n\u00e9\ud83d\ude00","":false})",
      R"( [ "\"\\\/\b\f\n\r\t" , [] , {} , [ [ ] ] , 0 , -0 , 18446744073709551615 , -9223372036854775808 ] )",
      "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xED\x9F\xBF\xEE\x80\x80\"",
      "1e308",
      "-0.0e-0",
      "123456789012345678901234",
  };
  for (const std::string& text : texts) {
    ASSERT_TRUE(is_accepted(text)) << text;
    for (std::size_t at = 0; at <= text.size(); ++at) {
      EXPECT_EQ(is_accepted(text.substr(0, at)), nlohmann::json::accept(text.substr(0, at))) << text.substr(0, at);
      for (int byte = 1; byte < 256; ++byte) {
        std::string changed = text;
        if (at < text.size()) changed[at] = static_cast<char>(byte);
        if (at == text.size()) changed.push_back(static_cast<char>(byte));
        if (changed.starts_with("\xEF\xBB\xBF")) continue;
        ASSERT_EQ(is_accepted(changed), nlohmann::json::accept(changed)) << changed;
      }
    }
  }
}

TEST(JsonReader, ReadsTheNumbersThatNlohmannReads) {
  for (const std::string text : {"0",
                                 "-0",
                                 "1",
                                 "-1",
                                 "9007199254740993",
                                 "18446744073709551615",
                                 "18446744073709551616",
                                 "-9223372036854775808",
                                 "-9223372036854775809",
                                 "0.1",
                                 "1e23",
                                 "2.2250738585072014e-308",
                                 "4.9e-324",
                                 "2e-324",
                                 "1e-400",
                                 "-1e-400",
                                 "0.001e-9223372036854775808",
                                 "1e-99999999999999999999",
                                 "0.00000000000000000000000000001e-310",
                                 "1.7976931348623157e308",
                                 "0e99999",
                                 "-0.0",
                                 "5e-1",
                                 "123456789012345678901234567890"}) {
    const nlohmann::json expected = nlohmann::json::parse(text);
    const auto number = read_whole_json(text, [](JsonReader& in) { return in.read_number(); });
    ASSERT_TRUE(number.has_value()) << text;
    if (expected.is_number_float()) {
      EXPECT_NE(number->kind, JsonNumber::Kind::integer) << text;
      EXPECT_EQ(std::bit_cast<std::uint64_t>(number->real), std::bit_cast<std::uint64_t>(expected.get<double>()))
          << text;
    } else {
      ASSERT_EQ(number->kind, JsonNumber::Kind::integer) << text;
      const auto bits = number->negative ? 0 - number->magnitude : number->magnitude;
      EXPECT_EQ(bits, expected.is_number_unsigned() ? expected.get<std::uint64_t>()
                                                    : static_cast<std::uint64_t>(expected.get<std::int64_t>()));
      EXPECT_EQ(number->negative, !expected.is_number_unsigned() && expected.get<std::int64_t>() < 0) << text;
    }
  }
  for (const std::string text : {"1e309", "-1e309", "1e99999999999999999999", "100e9223372036854775807", "0.001e999"}) {
    EXPECT_FALSE(is_accepted(text)) << text;
    EXPECT_FALSE(nlohmann::json::accept(text)) << text;
  }
}

TEST(JsonReader, WritesStringsThatReadBack) {
  std::string text;
  for (int byte = 0; byte < 0x80; ++byte) text.push_back(static_cast<char>(byte));
  text += "\xC3\xA9\xF0\x9F\x98\x80";
  for (const JsonEscapes escapes : {JsonEscapes::all_short, JsonEscapes::without_b_and_f}) {
    std::string json;
    append_json_string(json, text, escapes);
    const auto read = read_whole_json(json, [](JsonReader& in) { return in.read_string(); });
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_EQ(*read, text);
    EXPECT_EQ(json == nlohmann::json(text).dump(), escapes == JsonEscapes::all_short);
  }
}

TEST(JsonReader, CountsPlainCharactersAtEveryPlaceOfAWord) {
  for (int byte = 0; byte < 0x100; ++byte) {
    const bool is_plain = byte >= ' ' && byte <= '~' && byte != '"' && byte != '\\';
    for (std::size_t at = 0; at < 20; ++at) {
      for (const char other : {' ', 'a', '~', '!', '#', '[', ']'}) {
        std::string text(20, other);
        text[at] = static_cast<char>(byte);
        EXPECT_EQ(plain_characters(text), is_plain ? text.size() : at) << byte << " at " << at;
      }
    }
  }
  EXPECT_EQ(plain_characters(""), 0U);
}

TEST(JsonReader, RejectsRepeatedKeysDeepNestingAndByteOrderMarks) {
  const auto error_of = [](const std::string& text) {
    const auto read = read_whole_json(text, [](JsonReader& in) { return in.skip_value(); }, 8);
    return read ? std::string() : read.error().message();
  };
  EXPECT_EQ(error_of(R"({"a":[{"b":1,"\u0062":2}]})"), "JSON: key 'b' appears twice in an object");
  std::string many = R"({"\u006b0":0)";
  for (int key = 1; key < 100; ++key) {
    many += ",\"k" + std::to_string(key) + "\":0";
    for (const int twice : {0, key / 2, key}) {
      EXPECT_EQ(error_of(many + ",\"k" + std::to_string(twice) + "\":1}"),
                "JSON: key 'k" + std::to_string(twice) + "' appears twice in an object");
    }
  }
  EXPECT_EQ(error_of(many + "}"), "");
  EXPECT_EQ(error_of("[[[[[[[[1]]]]]]]]"), "");
  EXPECT_EQ(error_of("[[[[[[[[[1]]]]]]]]]"), "JSON: nested deeper than 8");
  EXPECT_EQ(error_of("[{},{},{},{},{},{},{},{},{},[],[],[[[[[[{}]]]]]]]"), "");
  EXPECT_EQ(error_of("[[[[[[[[{}]]]]]]]]"), "JSON: nested deeper than 8");
  EXPECT_EQ(error_of("\xEF\xBB\xBF[]"), "JSON: begins with a byte order mark");
  EXPECT_EQ(error_of(std::string("[]\0", 3)), "JSON: malformed at byte 3");
}

TEST(JsonReader, StatesTheExpectedAndTheFoundType) {
  const auto error_of = [](const std::string& text, auto read) {
    return read_whole_json(text, read).error().message();
  };
  const auto number = [](JsonReader& in) { return in.read_unsigned(255); };
  for (const auto& [text, found] :
       std::vector<std::pair<std::string, std::string>>{{"256", "an integer"},
                                                        {"-1", "a negative integer"},
                                                        {"1.0", "a number with a fraction or an exponent"},
                                                        {"99999999999999999999", "an integer beyond 64 bits"},
                                                        {"\"1\"", "a string"},
                                                        {"null", "null"},
                                                        {"true", "a boolean"},
                                                        {"[1]", "an array"},
                                                        {"{}", "an object"}}) {
    EXPECT_EQ(error_of(text, number), "expected an integer from 0 to 255, found " + found);
  }
  EXPECT_EQ(error_of("1", [](JsonReader& in) { return in.read_bool(); }), "expected true or false, found an integer");
  EXPECT_EQ(error_of("1", [](JsonReader& in) { return in.read_string(); }), "expected a string, found an integer");
  EXPECT_EQ(error_of("9223372036854775808", [](JsonReader& in) { return in.read_integer(); }),
            "expected an integer that fits in 64 bits with its sign, found an integer");
  EXPECT_EQ(read_whole_json("-9223372036854775808", [](JsonReader& in) { return in.read_integer(); }).value(),
            std::numeric_limits<std::int64_t>::min());
}

}  // namespace
}  // namespace bitsnap::json
