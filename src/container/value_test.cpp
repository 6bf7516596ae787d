// The typed tree: what goes through JSON and comes back, and each rule with what breaks it.
#include <bitsnap/value.hpp>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace bitsnap {
namespace {

using ::testing::HasSubstr;

std::string text_of(const Value& value) {
  const auto text = serialize_value(value);
  EXPECT_TRUE(text.has_value()) << text.error().message();
  return text ? *text : "";
}

// Serialized, parsed and serialized again; the first and the second text.
void expect_round_trip(const Value& value, const std::string& json) {
  EXPECT_EQ(text_of(value), json);
  const auto parsed = parse_value(json, 10);
  ASSERT_TRUE(parsed.has_value()) << json << ": " << parsed.error().message();
  EXPECT_EQ(parsed->get().index(), value.get().index()) << json;
  EXPECT_EQ(text_of(*parsed), json);
}

Value text(std::string s) { return Value(std::move(s)); }
Value integer(std::int64_t n) { return Value(n); }

TEST(TypedTree, RoundTripsEachType) {
  expect_round_trip(Value(), "null");
  expect_round_trip(Value(true), "true");
  expect_round_trip(Value(false), "false");
  expect_round_trip(text("a\"\\\n\x01\x7F\xC3\xA9"), "\"a\\\"\\\\\\n\\u0001\x7F\xC3\xA9\"");
  expect_round_trip(text(std::string("\0", 1)), "\"\\u0000\"");
  expect_round_trip(Value(std::complex<double>(1.5, -0.0)), R"({"complex":[1.5,-0.0]})");
  expect_round_trip(Value(std::complex<double>(0.0, std::bit_cast<double>(0x7FF8000000000001U))),
                    R"({"complex":[0.0,{"f64":"7ff8000000000001"}]})");
  expect_round_trip(Value(ValueList{integer(1), Value(ValueList{})}), "[1,[]]");
  expect_round_trip(Value(ValueTuple{{integer(1), text("")}}), R"({"tuple":[1,""]})");
  expect_round_trip(Value(ValueTensor{3, ValueTensor::Kind::tensor}), R"({"tensor":3})");
  expect_round_trip(Value(ValueTensor{9, ValueTensor::Kind::array}), R"({"array":9})");
  expect_round_trip(Value(ValueTensor{0, ValueTensor::Kind::scalar}), R"({"scalar":0})");
}

TEST(TypedTree, KeepsTypesOfKeysThatLookAlike) {
  ValueDict dict;
  for (const Value& key : {Value(), Value(true), integer(1), Value(1.0), text("1"), Value(ValueBytes{"1"}),
                           Value(ValueTuple{{integer(1)}}), Value(0.0), Value(-0.0), Value(std::nan("")),
                           Value(ValueBigInt{"99999999999999999999"}), Value(ValueTuple{{Value(ValueTuple{})}})}) {
    dict.entries.emplace_back(key, integer(static_cast<std::int64_t>(dict.entries.size())));
  }
  expect_round_trip(
      Value(std::move(dict)),
      R"({"dict":[[null,0],[true,1],[1,2],[1.0,3],["1",4],[{"bytes":"MQ=="},5],[{"tuple":[1]},6],[0.0,7],)"
      R"([-0.0,8],[{"f64":"7ff8000000000000"},9],[{"int":"99999999999999999999"},10],)"
      R"([{"tuple":[{"tuple":[]}]},11]]})");
}

TEST(TypedTree, RoundTripsTypedValues) {
  expect_round_trip(Value(ValueTyped{"torch.dtype", {text("bfloat16")}}), R"({"typed":["torch.dtype","bfloat16"]})");
  expect_round_trip(Value(ValueTyped{"a", {Value(ValueTyped{"B_1", {Value()}})}}),
                    R"({"typed":["a",{"typed":["B_1",null]}]})");
  expect_round_trip(Value(ValueTyped{std::string(64, 'z'), {Value(ValueDict{})}}),
                    R"({"typed":[")" + std::string(64, 'z') + R"(",{"dict":[]}]})");
  // A long value.
  expect_round_trip(Value(ValueTyped{"bytes", {Value(ValueTensor{3})}}), R"({"typed":["bytes",{"tensor":3}]})");
}

TEST(TypedTree, AcceptsTypedValuesOfKeysAsKeys) {
  const Value key(ValueTyped{"enum", {Value(ValueTuple{{text("m"), text("C")}})}});
  expect_round_trip(Value(ValueDict{{{key, integer(1)}, {Value(ValueTuple{{key}}), integer(2)}}}),
                    R"({"dict":[[{"typed":["enum",{"tuple":["m","C"]}]},1],)"
                    R"([{"tuple":[{"typed":["enum",{"tuple":["m","C"]}]}]},2]]})");
}

TEST(TypedTree, WritesEachIntegerInOneWay) {
  expect_round_trip(integer(0), "0");
  expect_round_trip(integer(9007199254740991), "9007199254740991");
  expect_round_trip(integer(-9007199254740991), "-9007199254740991");
  expect_round_trip(integer(9007199254740992), R"({"int":"9007199254740992"})");
  expect_round_trip(integer(std::numeric_limits<std::int64_t>::min()), R"({"int":"-9223372036854775808"})");
  expect_round_trip(Value(ValueBigInt{"9223372036854775808"}), R"({"int":"9223372036854775808"})");
  expect_round_trip(Value(ValueBigInt{"-170141183460469231731687303715884105728"}),
                    R"({"int":"-170141183460469231731687303715884105728"})");
  EXPECT_EQ(text_of(Value(ValueBigInt{"-5"})), "-5");
  EXPECT_EQ(text_of(Value(ValueBigInt{"9007199254740992"})), R"({"int":"9007199254740992"})");
}

TEST(TypedTree, WritesDoublesExactlyAndUnlikeIntegers) {
  expect_round_trip(Value(0.1), "0.1");
  expect_round_trip(Value(1.0), "1.0");
  expect_round_trip(Value(1e-08), "1e-08");
  expect_round_trip(Value(-0.0), "-0.0");
  expect_round_trip(Value(123456789012345680000.0), "123456789012345683968.0");
  expect_round_trip(Value(1e300), "1e+300");
  expect_round_trip(Value(5e-324), "5e-324");
  expect_round_trip(Value(std::numeric_limits<double>::max()), "1.7976931348623157e+308");
  expect_round_trip(Value(-std::numeric_limits<double>::infinity()), R"({"f64":"fff0000000000000"})");
  expect_round_trip(Value(std::bit_cast<double>(0xFFF123456789ABCDU)), R"({"f64":"fff123456789abcd"})");
}

RC_GTEST_PROP(TypedTree, KeepsTheBitsOfEveryDouble, (std::uint64_t bits)) {
  const auto json = serialize_value(Value(std::bit_cast<double>(bits)));
  RC_ASSERT(json.has_value());
  const auto value = parse_value(*json, 0);
  RC_ASSERT(value.has_value());
  RC_ASSERT(std::bit_cast<std::uint64_t>(std::get<double>(value->get())) == bits);
}

RC_GTEST_PROP(TypedTree, KeepsAllBytes, (std::string bytes)) {
  const auto json = serialize_value(Value(ValueBytes{bytes}));
  RC_ASSERT(json.has_value());
  const auto value = parse_value(*json, 0);
  RC_ASSERT(value.has_value());
  RC_ASSERT(std::get<ValueBytes>(value->get()).bytes == bytes);
}

TEST(TypedTree, ReadsJsonWithSpacesAndEscapes) {
  const auto value = parse_value(" { \"d\\u0069ct\" : [ [ \"\\ud83d\\ude00\" , 1E2 ] ] } ", 0);
  ASSERT_TRUE(value.has_value()) << value.error().message();
  EXPECT_EQ(text_of(*value), "{\"dict\":[[\"\xF0\x9F\x98\x80\",100.0]]}");
}

TEST(TypedTree, RejectsInvalidTrees) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "malformed"},
      {"1 2", "malformed"},
      {"{}", "without a key"},
      {R"({"a":1})", "unknown value type 'a'"},
      {R"({"":1})", "unknown value type ''"},
      {R"({"int":"99999999999999999999","f64":"7ff8000000000000"})", "more than one key"},
      {"9007199254740992", "too large for a number"},
      {"-9007199254740992", "too large for a number"},
      {"99999999999999999999", "an integer beyond 64 bits"},
      {R"({"int":5})", "expected a string"},
      {R"({"int":"5"})", "must be a JSON number"},
      {R"({"int":"-9007199254740991"})", "must be a JSON number"},
      {R"({"int":"099999999999999999999"})", "not a decimal integer"},
      {R"({"int":"+99999999999999999999"})", "not a decimal integer"},
      {R"({"int":"9999999999999999999x"})", "not a decimal integer"},
      {R"({"int":"-"})", "not a decimal integer"},
      {R"({"int":""})", "not a decimal integer"},
      {R"({"int":"-0"})", "not a decimal integer"},
      {R"({"f64":"3ff0000000000000"})", "finite double"},
      {R"({"f64":"7FF8000000000000"})", "lower-case"},
      {R"({"f64":"7ff800000000000"})", "16"},
      {R"({"f64":1.5})", "expected a string"},
      {R"({"complex":[1.0]})", "two parts"},
      {R"({"complex":[1.0,2.0,3.0]})", "two parts"},
      {R"({"complex":[1,2.0]})", "not a double"},
      {R"({"complex":[[],2.0]})", "not a double"},
      {R"({"complex":[{"complex":[1.0,1.0]},2.0]})", "not a double"},
      {R"({"complex":1.0})", "expected an array"},
      {R"({"bytes":"A"})", "base64"},
      {R"({"bytes":"AB=="})", "base64"},
      {R"({"bytes":"AAB="})", "base64"},
      {R"({"bytes":"A==="})", "base64"},
      {R"({"bytes":"===="})", "base64"},
      {R"({"bytes":"AA==AA=="})", "base64"},
      {R"({"bytes":"AA A"})", "base64"},
      {R"({"tuple":{}})", "expected an array"},
      {R"({"dict":{}})", "expected an array"},
      {R"({"dict":[1]})", "expected a pair"},
      {R"({"dict":[[1]]})", "a key and a value"},
      {R"({"dict":[[]]})", "a key and a value"},
      {R"({"dict":[[1,2,3]]})", "a key and a value"},
      {R"({"dict":[[[],2]]})", "keys cannot have"},
      {R"({"dict":[[{"dict":[]},2]]})", "keys cannot have"},
      {R"({"dict":[[{"complex":[1.0,1.0]},2]]})", "keys cannot have"},
      {R"({"dict":[[{"tensor":0},2]]})", "keys cannot have"},
      {R"({"dict":[[{"tuple":[{"tuple":[[]]}]},2]]})", "keys cannot have"},
      {R"({"dict":[["a",1],["b",2],["\u0061",3]]})", "appears twice"},
      {R"({"dict":[[1.0,1],[1e0,2]]})", "appears twice"},
      {R"({"dict":[[{"typed":["a",[]]},2]]})", "keys cannot have"},
      {R"({"dict":[[{"typed":["a",1]},1],[{"typed":["\u0061",1]},2]]})", "appears twice"},
      {R"({"typed":"a"})", "expected an array"},
      {R"({"typed":[]})", "a name and a content"},
      {R"({"typed":["a"]})", "a name and a content"},
      {R"({"typed":["a",1,2]})", "a name and a content"},
      {R"({"typed":["",1]})", "'' is not a type name"},
      {R"({"typed":["a b",1]})", "'a b' is not a type name"},
      {R"({"typed":[1,1]})", "expected a string"},
      {R"({"typed":[{"typed":["a",1]},1]})", "expected a string"},
      {R"({"typed":[")" + std::string(65, 'z') + R"(",1]})", "is not a type name"},
      {R"({"tensor":10})", "tensor 10, the state has 10 tensors"},
      {R"({"tensor":-1})", "index of a tensor"},
      {R"({"scalar":"0"})", "index of a tensor"},
      {R"({"array":1.0})", "index of a tensor"},
  };
  for (const auto& [json, part] : cases) {
    const auto value = parse_value(json, 10);
    ASSERT_FALSE(value.has_value()) << json;
    EXPECT_EQ(value.error().kind(), ErrorKind::corrupt) << json;
    EXPECT_THAT(value.error().message(), HasSubstr(part)) << json;
  }
}

TEST(TypedTree, ReportsThePathOfAnError) {
  const auto value = parse_value(R"({"dict":[["a",1],["b",[0,{"tuple":[7,8,{"what":0}]}]]]})", 0);
  ASSERT_FALSE(value.has_value());
  EXPECT_THAT(value.error().message(), HasSubstr(R"(tree['"b"'][1][2]: unknown value type 'what')"));
}

std::string nested(std::size_t depth, const std::string& open, const std::string& leaf, const std::string& close) {
  std::string json;
  for (std::size_t i = 1; i < depth; ++i) json += open;
  json += leaf;
  for (std::size_t i = 1; i < depth; ++i) json += close;
  return json;
}

TEST(TypedTree, BoundsNesting) {
  const std::vector<std::vector<std::string>> ways = {
      {"[", "0", "]"},
      {R"({"dict":[[0,)", R"({"int":"99999999999999999999"})", "]]}"},
      {R"({"tuple":[)", R"({"complex":[0.0,{"f64":"7ff8000000000000"}]})", "]}"},
      {R"({"typed":["a",)", R"({"f64":"7ff8000000000000"})", "]}"},
  };
  for (const auto& way : ways) {
    const std::string deepest = nested(128, way[0], way[1], way[2]);
    const auto value = parse_value(deepest, 0);
    ASSERT_TRUE(value.has_value()) << value.error().message();
    EXPECT_EQ(text_of(*value), deepest);
    const auto deeper = parse_value(nested(129, way[0], way[1], way[2]), 0);
    ASSERT_FALSE(deeper.has_value());
    EXPECT_EQ(deeper.error().kind(), ErrorKind::corrupt);
    const Value wrapped(ValueList{*value});
    EXPECT_EQ(serialize_value(wrapped).error().kind(), ErrorKind::invalid_argument);
  }
}

TEST(TypedTree, EnforcesItsLimits) {
  DecodeLimits limits;
  limits.tree_nodes = 5;
  EXPECT_TRUE(parse_value("[1,2,3,4]", 0, limits).has_value());
  EXPECT_EQ(parse_value("[1,2,3,4,5]", 0, limits).error().kind(), ErrorKind::resource_exhausted);
  EXPECT_EQ(serialize_value(*parse_value("[1,2,3,4,5]", 0), limits).error().kind(), ErrorKind::invalid_argument);
  EXPECT_TRUE(parse_value(R"([1,{"typed":["a",[]]},2])", 0, limits).has_value());  // the name does not count
  EXPECT_EQ(parse_value(R"([1,{"typed":["a",[3]]},2])", 0, limits).error().kind(), ErrorKind::resource_exhausted);
  limits = {};
  limits.tree_depth = 2;
  EXPECT_TRUE(parse_value("[1]", 0, limits).has_value());
  EXPECT_EQ(parse_value("[[1]]", 0, limits).error().kind(), ErrorKind::resource_exhausted);
  EXPECT_EQ(serialize_value(*parse_value("[[1]]", 0), limits).error().kind(), ErrorKind::invalid_argument);
}

TEST(TypedTree, RejectsWritingWhatCannotBeRead) {
  const auto expect_refused = [](const Value& value) {
    const auto written = serialize_value(value);
    ASSERT_FALSE(written.has_value());
    EXPECT_EQ(written.error().kind(), ErrorKind::invalid_argument);
  };
  for (const char* bad : {"\xFF", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\xE0\x80\x80",
                          "\xF0\x80\x80\x80", "\x80"}) {
    expect_refused(text(bad));
  }
  for (const char* bad : {"", "-", "01", "+1", "1.0", "-0", " 1"}) expect_refused(Value(ValueBigInt{bad}));
  expect_refused(Value(ValueDict{{{Value(ValueList{}), Value()}}}));
  expect_refused(Value(ValueDict{{{Value(ValueTuple{{Value(ValueDict{})}}), Value()}}}));
  expect_refused(Value(ValueDict{{{Value(ValueTensor{}), Value()}}}));
  expect_refused(Value(ValueDict{{{Value(std::complex<double>()), Value()}}}));
  expect_refused(Value(ValueDict{{{text("a"), Value()}, {text("a"), Value(true)}}}));
  for (const char* bad : {"", "a-b", "\"", "\xC3\xA4"}) expect_refused(Value(ValueTyped{bad, {Value()}}));
  expect_refused(Value(ValueTyped{"a", {}}));
  expect_refused(Value(ValueTyped{"a", {Value(), Value()}}));
  expect_refused(Value(ValueDict{{{Value(ValueTyped{"a", {Value(ValueList{})}}), Value()}}}));
}

}  // namespace
}  // namespace bitsnap
