// Tests of reading and writing structs by tables of fields.
#include "json/json_fields.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace bitsnap::json {
namespace {

struct Part {
  std::uint32_t number = 0;
  friend bool operator==(const Part&, const Part&) = default;
};

struct Id {
  std::string digits;
  [[nodiscard]] std::string to_hex() const { return digits; }
  [[nodiscard]] static std::optional<Id> from_hex(std::string_view text) {
    if (text.size() != 32) return std::nullopt;
    return Id{std::string(text)};
  }
  friend bool operator==(const Id&, const Id&) = default;
};

struct Whole {
  std::uint64_t count = 0;
  std::int64_t shift = 0;
  std::uint8_t small = 0;
  std::string name;
  bool flag = true;
  std::optional<std::uint64_t> step;
  std::vector<Part> parts;
  Id id;
  friend bool operator==(const Whole&, const Whole&) = default;
};

constexpr auto json_fields(std::type_identity<Part>) { return std::array{json_field<&Part::number>("number")}; }

constexpr auto json_fields(std::type_identity<Whole>) {
  return std::array{
      json_field<&Whole::count>("count"),
      json_field<&Whole::shift>("shift"),
      json_field<&Whole::small>("small", JsonNeed::optional),
      json_field<&Whole::name>("name", JsonNeed::optional)
          .must("a short name", [](const Whole& whole) { return whole.name.size() < 4; }),
      json_field<&Whole::flag>("flag", JsonNeed::defaulted),
      json_field<&Whole::step>("step", JsonNeed::optional),
      json_field<&Whole::parts>("parts", JsonNeed::optional),
      json_field<&Whole::id>("id"),
  };
}

constexpr const char* kId = "000000000000000a000000000000000b";
constexpr std::string_view kLeast = R"({"count":1,"shift":-2,"flag":true,"id":"000000000000000a000000000000000b"})";

TEST(JsonFields, RoundTrip) {
  Whole whole{.count = std::numeric_limits<std::uint64_t>::max(),
              .shift = std::numeric_limits<std::int64_t>::min(),
              .small = 255,
              .name = "a\"b",
              .flag = false,
              .step = 0,
              .parts = {{1}, {2}},
              .id = {kId}};
  const std::string text = serialize_json(whole);
  EXPECT_EQ(text,
            R"({"count":18446744073709551615,"shift":-9223372036854775808,"small":255,"name":"a\"b","flag":false,)"
            R"("step":0,"parts":[{"number":1},{"number":2}],"id":"000000000000000a000000000000000b"})");
  EXPECT_EQ(parse_json<Whole>(text).value(), whole);
  whole = {.count = 1, .shift = -2, .small = 0, .name = {}, .flag = true, .step = {}, .parts = {}, .id = {kId}};
  EXPECT_EQ(serialize_json(whole), kLeast);
  EXPECT_EQ(parse_json<Whole>(kLeast).value(), whole);
  EXPECT_EQ(parse_json<Whole>(R"({"new":[{}],"id":"000000000000000a000000000000000b","shift":-2,"count":1})").value(),
            whole);
}

TEST(JsonFields, NameTheKeyOfAnError) {
  const auto error_with = [](const std::string& member) {
    std::string text(kLeast);
    text.insert(1, member + ",");
    const auto read = parse_json<Whole>(text);
    EXPECT_FALSE(read.has_value()) << member;
    return read ? std::string() : read.error().message();
  };
  EXPECT_EQ(error_with(R"("small":256)"), "key 'small': expected an integer from 0 to 255, found an integer");
  EXPECT_EQ(error_with(R"("name":null)"), "key 'name': expected a string, found null");
  EXPECT_EQ(error_with(R"("name":"long")"), "key 'name': expected a short name");
  EXPECT_EQ(error_with(R"("parts":[{"number":0},{}])"), "key 'parts': entry 1: key 'number' is missing");
  EXPECT_EQ(parse_json<Whole>(R"({"count":1,"shift":-2,"id":"0a"})").error().message(),
            "key 'id': '0a' is not 32 lower-case hexadecimal digits");
  EXPECT_EQ(parse_json<Whole>(R"({"count":1,"shift":-2,"id":10})").error().message(),
            "key 'id': expected an id, found an integer");
  EXPECT_EQ(error_with(R"("count":1)"), "JSON: key 'count' appears twice in an object");
  EXPECT_EQ(parse_json<Whole>("{}").error().message(), "key 'count' is missing");
  EXPECT_EQ(parse_json<Whole>("[]").error().message(), "expected an object, found an array");
  EXPECT_EQ(parse_json<Whole>("{} {}").error().message(), "key 'count' is missing");
  EXPECT_EQ(parse_json<Whole>(std::string(kLeast) + "x").error().message(), "JSON: malformed at byte 75");
}

struct Slot {
  bool held = false;
  std::uint64_t step = 0;
};

constexpr auto json_fields(std::type_identity<Slot>) {
  return std::array{json_field<&Slot::step>("step").only_if([](const Slot& slot) { return slot.held; }),
                    json_field<&Slot::held>("held")};
}

constexpr std::array<std::string_view, 3> kColours = {"red", "green", "blue"};
enum class Colour : std::uint8_t { red, green, blue };

struct Drawing {
  std::vector<std::tuple<std::uint64_t, std::string>> lines;
  Colour colour = Colour::red;
  std::optional<Colour> other;
};

constexpr auto json_fields(std::type_identity<Drawing>) {
  return std::array{json_field<&Drawing::lines>("lines"), json_field<&Drawing::colour, JsonName<kColours>>("colour"),
                    json_field<&Drawing::other, JsonName<kColours>>("other", JsonNeed::optional)};
}

TEST(JsonFields, ReadTuplesAsArraysAndEnumsByName) {
  const std::string text = R"({"lines":[[1,"a"],[2,"b"]],"colour":"blue","other":"green"})";
  const Drawing drawing = parse_json<Drawing>(text).value();
  EXPECT_EQ(drawing.lines.back(), std::tuple(2, "b"));
  EXPECT_EQ(drawing.colour, Colour::blue);
  EXPECT_EQ(drawing.other, Colour::green);
  EXPECT_EQ(serialize_json(drawing), text);
  for (const char* lines : {"[[1]]", "[[1,\"a\",2]]", "[[]]", "[[\"a\",1]]", "[1]", "[null]"}) {
    const auto read = parse_json<Drawing>(R"({"colour":"red","lines":)" + std::string(lines) + "}");
    ASSERT_FALSE(read.has_value()) << lines;
    EXPECT_EQ(read.error().message().find("key 'lines': entry 0: expected "), 0U) << read.error().message();
  }
  EXPECT_EQ(parse_json<Drawing>(R"({"lines":[],"colour":"grey"})").error().message(),
            "key 'colour': expected one of red, green, blue");
}

TEST(JsonFields, RequireAndWriteConditionalKeysOnlyIfTheyApply) {
  EXPECT_EQ(serialize_json(Slot{.held = true, .step = 0}), R"({"step":0,"held":true})");
  EXPECT_EQ(serialize_json(Slot{.held = false, .step = 7}), R"({"held":false})");
  EXPECT_EQ(parse_json<Slot>(R"({"step":7,"held":true})").value().step, 7U);
  EXPECT_EQ(parse_json<Slot>(R"({"held":true})").error().message(), "key 'step' is missing");
  EXPECT_TRUE(parse_json<Slot>(R"({"held":false})").has_value());
  EXPECT_FALSE(parse_json<Slot>(R"({"held":false,"step":-7})").has_value());
}

TEST(JsonFields, RejectUnknownKeysOnlyIfRequested) {
  const auto read = [](OnUnknownKey on_unknown) {
    return read_whole_json(R"({"number":1,"more":[1]})", [&](JsonReader& in) {
      Part part;
      return read_json_fields<Part>(in, part, json_fields_of<Part>(), on_unknown);
    });
  };
  EXPECT_TRUE(read(skip_unknown_key).has_value());
  EXPECT_EQ(read(reject_as_corrupt).error().kind(), ErrorKind::corrupt);
  EXPECT_EQ(read(reject_as_unsupported).error().kind(), ErrorKind::unsupported);
  EXPECT_EQ(read(reject_as_unsupported).error().message(), "unknown key 'more'");
}

}  // namespace
}  // namespace bitsnap::json
