// Tests of the two JSON sections: reading and writing, and every rule with what violates it.
#include "container/directory.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "container/value_reader.hpp"

namespace bitsnap::container {
namespace {

using ::testing::HasSubstr;

struct Bad {
  std::string json;
  ErrorKind kind;
  std::string part;
};

void expect_bad_content(const std::vector<Bad>& cases, const DecodeLimits& limits = {}) {
  for (const Bad& bad : cases) {
    const auto parsed = parse_content(bad.json, limits);
    ASSERT_FALSE(parsed.has_value()) << bad.json;
    EXPECT_EQ(error_kind_name(parsed.error().kind()), error_kind_name(bad.kind)) << bad.json;
    EXPECT_THAT(parsed.error().message(), HasSubstr(bad.part)) << bad.json;
  }
}

// A content with one tensor that has these keys besides the required ones.
std::string one(std::string_view keys, std::string_view dtype = "F32", std::string_view shape = "[2]",
                std::string_view rest = "") {
  return R"({"tensors":[{"name":"x","role":"other","dtype":")" + std::string(dtype) + R"(","shape":)" +
         std::string(shape) + std::string(keys) + "}]" + std::string(rest) + "}";
}

// The same after a tensor "t" of 8 bytes, an alias "u" of it and an empty one "e".
std::string second(std::string_view keys, std::string_view rest = "") {
  return R"({"tensors":[{"name":"t","role":"other","dtype":"F64","shape":[1]},)"
         R"({"name":"u","role":"other","dtype":"F64","shape":[],"alias":0},)"
         R"({"name":"e","role":"other","dtype":"F64","shape":[0]},)"
         R"({"name":"x","role":"other","dtype":"F32","shape":[2])" +
         std::string(keys) + "}]" + std::string(rest) + "}";
}

TEST(Content, ReadsTheExampleOfTheSpecification) {
  const std::string json =
      R"({"tensors": [
   {"name": "model.wte", "dtype": "BF16", "shape": [512, 128], "role": "weight"},
   {"name": "lm_head",   "dtype": "BF16", "shape": [512, 128], "role": "weight", "alias": 0},
   {"name": "step",      "dtype": "F32",  "shape": [],         "role": "other",  "pool": 0},
   {"name": "packed",    "dtype": "F4",   "shape": [7],        "role": "other",  "bytes": 4}],
 "pool": 4,
 "metadata": {"framework": "torch"},
 "tree": {"dict": [["step", {"tensor": 2}]]}})";
  const auto content = parse_content(json, {});
  ASSERT_TRUE(content.has_value()) << content.error().message();
  ASSERT_EQ(content->tensors.size(), 4U);
  EXPECT_EQ(content->tensors[0].size_bytes, 512U * 128 * 2);
  EXPECT_EQ(content->tensors[1].alias_of, 0U);
  EXPECT_EQ(content->pool_offsets[2], 0U);
  EXPECT_EQ(content->tensors[3].dtype, DType::opaque);
  EXPECT_EQ(content->tensors[3].dtype_name, "F4");
  EXPECT_EQ(content->tensors[3].size_bytes, 4U);
  EXPECT_EQ(content->metadata, (std::vector<std::pair<std::string, std::string>>{{"framework", "torch"}}));
  ASSERT_TRUE(content->tree.has_value());
  EXPECT_EQ(*serialize_content(*content),
            R"({"tensors":[{"name":"model.wte","dtype":"BF16","shape":[512,128],"role":"weight"},)"
            R"({"name":"lm_head","dtype":"BF16","shape":[512,128],"role":"weight","alias":0},)"
            R"({"name":"step","dtype":"F32","shape":[],"role":"other","pool":0},)"
            R"({"name":"packed","dtype":"F4","shape":[7],"role":"other","bytes":4}],)"
            R"("pool":4,"metadata":{"framework":"torch"},"tree":{"dict": [["step", {"tensor": 2}]]}})");

  const auto streams = derive_streams(*content);
  ASSERT_TRUE(streams.has_value());
  ASSERT_EQ(streams->streams.size(), 3U);
  EXPECT_EQ(streams->streams[1].elements, 4U);
  EXPECT_EQ(streams->pool, 2U);
  EXPECT_EQ(streams->first_chunk, (std::vector<std::uint64_t>{0, 1, 2, 3}));
}

TEST(Content, AcceptsKeysInAnyOrder) {
  const auto content = parse_content(
      R"({"tree":{"scalar":0},"pool":9,"tensors":[{"pool":1,"shape":[],"role":"exp_avg","name":"s","dtype":"F64"}]})",
      {});
  ASSERT_TRUE(content.has_value()) << content.error().message();
  EXPECT_EQ(content->tensors[0].role, Role::exp_avg);
}

TEST(Content, KeepsNumbersExactAndStringsWhole) {
  const auto content = parse_content(
      one(R"(,"bytes":9007199254740993,"global_shape":[18446744073709551615],"offset":[18446744073709551613])", "X",
          "[2]", R"(,"metadata":{"k":"\u0000\ud83d\ude00\n","":""})"),
      {});
  ASSERT_FALSE(content.has_value());  // beyond the limit of a tensor
  DecodeLimits limits;
  limits.tensor_bytes = ~std::uint64_t{0};
  const auto large = parse_content(
      one(R"(,"bytes":9007199254740993,"global_shape":[18446744073709551615],"offset":[18446744073709551613])", "X",
          "[2]", R"(,"metadata":{"k":"\u0000\ud83d\ude00\n","":""})"),
      limits);
  ASSERT_TRUE(large.has_value()) << large.error().message();
  EXPECT_EQ(large->tensors[0].size_bytes, 9007199254740993U);
  EXPECT_EQ(large->tensors[0].shard->global_shape[0], 18446744073709551615U);
  EXPECT_EQ(large->metadata[0].second, std::string("\0\xF0\x9F\x98\x80\n", 6));
  EXPECT_EQ(*parse_content(*serialize_content(*large), limits)->tensors[0].shard, *large->tensors[0].shard);
}

TEST(Content, RejectsMalformedJson) {
  const std::string good = one("");
  ASSERT_TRUE(parse_content(good, {}).has_value());
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(parse_content(std::string_view(good).substr(0, size), {}).has_value()) << size;
  }
  expect_bad_content({
      {good + " x", ErrorKind::corrupt, "malformed"},
      {good + std::string("\0", 1), ErrorKind::corrupt, "malformed"},
      {good + std::string("\0{}", 3), ErrorKind::corrupt, "malformed"},
      {"\xEF\xBB\xBF" + good, ErrorKind::corrupt, "byte order mark"},
      {"\xFF" + good, ErrorKind::corrupt, "malformed"},
      {one(R"(,"pool":01)"), ErrorKind::corrupt, "malformed"},
      {one(R"(,"pool":+1)"), ErrorKind::corrupt, "malformed"},
      {one("/* */"), ErrorKind::corrupt, "malformed"},
      {one(","), ErrorKind::corrupt, "malformed"},
      {R"({"tensors":[],"metadata":{"x":")"
       "\xC0\x80"
       R"("}})",
       ErrorKind::corrupt, "malformed"},
      {R"({"tensors":[],"metadata":{"x":"\ud800"}})", ErrorKind::corrupt, "malformed"},
      {R"({"tensors":[],"metadata":{"x":")"
       "\n"
       R"("}})",
       ErrorKind::corrupt, "malformed"},
      {R"({"tensors":[],"tree":NaN})", ErrorKind::corrupt, "malformed"},
      {R"({"tensors":[],"tree":1e999})", ErrorKind::corrupt, "malformed"},
      {std::string(100000, '['), ErrorKind::corrupt, "expected an object"},
      {R"({"tensors":[],"tree":)" + std::string(100000, '['), ErrorKind::corrupt, "malformed"},
      {R"({"tensors":[],"tree":["}]\"]})", ErrorKind::corrupt, "malformed"},
      {R"({"tensors":[],"tree":["a\)", ErrorKind::corrupt, "malformed"},
      {R"({"tensors":[],"tree":{"dict":[]}]})", ErrorKind::corrupt, "malformed"},
  });
}

TEST(Content, RejectsRepeatedAndUnknownAndMissingKeys) {
  expect_bad_content({
      {R"({"tensors":[],"tensors":[]})", ErrorKind::corrupt, "'tensors' appears twice"},
      {one(R"(,"dtype":"F32")"), ErrorKind::corrupt, "'dtype' appears twice"},
      {one(R"(,"dtyp\u0065":"F32")"), ErrorKind::corrupt, "'dtype' appears twice"},
      {R"({"tensors":[],"metadata":{"a":"","a":""}})", ErrorKind::corrupt, "'a' appears twice"},
      {R"({"tensors":[],"more":1})", ErrorKind::unsupported, "'more'"},
      {one(R"(,"sparse":true)"), ErrorKind::unsupported, "tensor 0 'x': unknown key 'sparse'"},
      {"{}", ErrorKind::corrupt, "'tensors' is missing"},
      {R"({"tensors":[{"name":"a","dtype":"U8","shape":[1]}]})", ErrorKind::corrupt,
       "tensor 0 'a': key 'role' is missing"},
      {R"({"tensors":[{"name":"a","dtype":"U8","role":"other"}]})", ErrorKind::corrupt, "'shape' is missing"},
      {R"({"tensors":[{"name":"a","shape":[1],"role":"other"}]})", ErrorKind::corrupt, "'dtype' is missing"},
      {R"({"tensors":[{"dtype":"U8","shape":[1],"role":"other"}]})", ErrorKind::corrupt, "'name' is missing"},
  });
}

TEST(Content, RejectsValuesOfTheWrongType) {
  expect_bad_content({
      {"[]", ErrorKind::corrupt, "expected an object, found an array"},
      {"3", ErrorKind::corrupt, "expected an object"},
      {R"({"tensors":{}})", ErrorKind::corrupt, "expected an array"},
      {R"({"tensors":[3]})", ErrorKind::corrupt, "expected a tensor's entry"},
      {R"({"tensors":[],"pool":-1})", ErrorKind::corrupt, "a negative integer"},
      {R"({"tensors":[],"pool":1.0})", ErrorKind::corrupt, "a number with a fraction"},
      {R"({"tensors":[],"pool":"1"})", ErrorKind::corrupt, "a string"},
      {R"({"tensors":[],"pool":0})", ErrorKind::corrupt, "at least 1"},
      {R"({"tensors":[],"metadata":[]})", ErrorKind::corrupt, "expected an object"},
      {R"({"tensors":[],"metadata":{"a":1}})", ErrorKind::corrupt, "key 'metadata': key 'a': expected a string"},
      {one("", "F32", "[1.0]"), ErrorKind::corrupt, "a number with a fraction"},
      {one("", "F32", "[1e2]"), ErrorKind::corrupt, "a number with a fraction or an exponent"},
      {one("", "F32", "[-1]"), ErrorKind::corrupt, "a negative integer"},
      {one("", "F32", "[18446744073709551616]"), ErrorKind::corrupt, "an integer beyond 64 bits"},
      {one("", "F32", "[[1]]"), ErrorKind::corrupt,
       "tensor 0 'x': key 'shape': dimension 0: expected an unsigned integer"},
      {one("", "F32", "2"), ErrorKind::corrupt, "expected an array"},
      {one(R"(,"alias":"0")"), ErrorKind::corrupt, "'alias'"},
      {R"({"tensors":[{"name":3}]})", ErrorKind::corrupt, "key 'name': expected a string"},
      {R"({"tensors":[{"name":"a","dtype":"U8","shape":[1],"role":"wight"}]})", ErrorKind::corrupt, "role 'wight'"},
  });
}

TEST(Content, RejectsSizesThatOverflowOrPassTheLimit) {
  DecodeLimits limits;
  limits.tensor_bytes = 1000;
  limits.dimensions = 2;
  limits.name_bytes = 3;
  expect_bad_content({{one("", "F32", "[4294967296,4294967296]"), ErrorKind::corrupt, "2^63 - 1 bytes"},
                      {one("", "F32", "[18446744073709551615]"), ErrorKind::corrupt, "2^63 - 1 bytes"},
                      {one(R"(,"bytes":1)", "F4", "[4294967296,4294967296]"), ErrorKind::corrupt, "2^63 - 1 bytes"}});
  expect_bad_content({{one("", "F32", "[251]"), ErrorKind::resource_exhausted, "limit of 1000"},
                      {one(R"(,"bytes":1001)", "F4"), ErrorKind::resource_exhausted, "limit of 1000"},
                      {R"({"tensors":[],"pool":1001})", ErrorKind::resource_exhausted, "limit of 1000"},
                      {one("", "F32", "[1,1,1]"), ErrorKind::resource_exhausted, "limit of 2"},
                      {R"({"tensors":[{"name":"abcd","dtype":"U8","shape":[1],"role":"other"}]})",
                       ErrorKind::resource_exhausted, "limit of 3"}},
                     limits);
}

TEST(Content, ChecksBytesAgainstTheDtype) {
  expect_bad_content({{one("", "F4"), ErrorKind::corrupt, "without 'bytes'"},
                      {one(R"(,"bytes":8)"), ErrorKind::corrupt, "with a known dtype"}});
}

TEST(Content, RejectsTwoTensorsOfOneName) {
  expect_bad_content(
      {{second("").replace(second("").find("\"x\""), 3, "\"t\""), ErrorKind::corrupt, "duplicate tensor name 't'"}});
}

TEST(Content, RejectsBadAliases) {
  ASSERT_TRUE(parse_content(second(R"(,"alias":0)"), {}).has_value());
  expect_bad_content({
      {second(R"(,"alias":3)"), ErrorKind::corrupt, "expected an earlier tensor"},
      {second(R"(,"alias":18446744073709551615)"), ErrorKind::corrupt, "expected an earlier tensor"},
      {second(R"(,"alias":1)"), ErrorKind::corrupt, "is an alias itself"},
      {second(R"(,"alias":2)"), ErrorKind::corrupt, "found 8 bytes, but the target of 'alias' has 0"},
      {one(R"(,"alias":0)", "F32", "[0]"), ErrorKind::corrupt, "an empty tensor"},
      {second(R"(,"alias":0,"pool":0)", R"(,"pool":8)"), ErrorKind::corrupt, "exclude each other"},
  });
}

TEST(Content, RejectsTensorsThatLeaveThePool) {
  ASSERT_TRUE(parse_content(one(R"(,"pool":1)", "F32", "[2]", R"(,"pool":9)"), {}).has_value());
  expect_bad_content({
      {one(R"(,"pool":2)", "F32", "[2]", R"(,"pool":9)"), ErrorKind::corrupt,
       "tensor 'x': 8 bytes at offset 2 exceed the pool of 9 bytes"},
      {one(R"(,"pool":0)"), ErrorKind::corrupt, "exceed the pool of 0 bytes"},
      {one(R"(,"pool":18446744073709551615)", "F32", "[2]", R"(,"pool":9)"), ErrorKind::corrupt, "exceed the pool"},
      {one(R"(,"pool":0)", "F32", "[0]", R"(,"pool":9)"), ErrorKind::corrupt, "an empty tensor"},
  });
}

TEST(Content, RejectsShardsThatLeaveTheirTensor) {
  ASSERT_TRUE(parse_content(one(R"(,"global_shape":[4],"offset":[2])"), {}).has_value());
  expect_bad_content({
      {one(R"(,"global_shape":[4])"), ErrorKind::corrupt, "must be given together"},
      {one(R"(,"offset":[4])"), ErrorKind::corrupt, "must be given together"},
      {one(R"(,"global_shape":[4],"offset":[3])"), ErrorKind::corrupt, "dimension 0"},
      {one(R"(,"global_shape":[4],"offset":[18446744073709551615])"), ErrorKind::corrupt, "dimension 0"},
      {one(R"(,"global_shape":[4,1],"offset":[2])"), ErrorKind::corrupt, "have 1, 2 and 1 numbers"},
      {one(R"(,"global_shape":[4],"offset":[])"), ErrorKind::corrupt, "have 1, 1 and 0 numbers"},
  });
}

TEST(Content, LeavesTheTreeToBeCheckedWhenItIsRead) {
  const std::vector<Bad> cases = {
      {one("", "F32", "[2]", R"(,"tree":[{"tensor":1}])"), ErrorKind::corrupt,
       "refers to tensor 1, the state has 1 tensors"},
      {R"({"tree":{"array":0},"tensors":[]})", ErrorKind::corrupt, "refers to tensor 0, the state has 0 tensors"},
      {one("", "F32", "[2]", R"(,"tree":{"scalar":0})"), ErrorKind::corrupt,
       "tensor 'x' is a scalar with 1 dimensions"},
      {one("", "F32", "[2]", R"(,"tree":{"what":0})"), ErrorKind::corrupt, "tree: unknown value type 'what'"},
      {one("", "F32", "[2]", R"(,"tree":["]}",{"tuple":[NaN]}])"), ErrorKind::corrupt, "malformed at byte 17"},
      {one("", "F32", "[2]", R"(,"tree":[1,{]})"), ErrorKind::corrupt, "malformed at byte 5"},
      {R"({"tensors":[],"tree":)" + std::string(100000, '[') + std::string(100000, ']') + "}", ErrorKind::corrupt,
       "nested deeper"},
  };
  for (const Bad& bad : cases) {
    const auto content = parse_content(bad.json, {});
    ASSERT_TRUE(content.has_value()) << bad.json << content.error().message();
    const auto tree = parse_tree(content->tree.value(), content->tensors, {});
    ASSERT_FALSE(tree.has_value()) << bad.json;
    EXPECT_EQ(tree.error().kind(), bad.kind) << bad.json;
    EXPECT_THAT(tree.error().message(), HasSubstr(bad.part)) << bad.json;
  }
}

// Entries in the writer's spelling are read in a way of their own.
TEST(Content, MeansTheSameInAnySpelling) {
  const auto content_of = [](std::string_view entry) {
    auto content = parse_content(fmt::format(R"({{"tensors":[{}],"pool":64}})", entry), {});
    EXPECT_TRUE(content.has_value()) << entry << content.error().message();
    return serialize_content(*content).value();
  };
  const std::string written = R"({"name":"w","dtype":"F32","shape":[2,3],"role":"weight","pool":8})";
  for (const char* const other : {R"({"name": "w","dtype":"F32","shape":[2,3],"role":"weight","pool":8})",
                                  R"({"name":"\u0077","dtype":"F32","shape":[2,3],"role":"weight","pool":8})",
                                  R"({"name":"w","dtype":"F32","shape":[2 ,3],"role":"weight","pool":8})",
                                  R"({"name":"w","dtype":"F32","shape":[2,3],"pool":8,"role":"weight"})",
                                  R"({"name":"w","dtype":"F32","shape":[2,3],"role":"weight","pool":8 })"}) {
    EXPECT_EQ(content_of(other), content_of(written)) << other;
  }
  const std::string large = R"({"name":"w","dtype":"U8","shape":[0,12345678901234567890],"role":"other"})";
  EXPECT_EQ(content_of(large), fmt::format(R"({{"tensors":[{}],"pool":64}})", large));
  const std::string unicode = R"({"name":"größe","dtype":"U8","shape":[],"role":"other"})";
  EXPECT_EQ(content_of(unicode), fmt::format(R"({{"tensors":[{}],"pool":64}})", unicode));
}

TEST(Content, RejectsWritingWhatCannotBeRead) {
  Content content;
  content.tensors.push_back({"a\xFF", DType::u8, "U8", {1}, 1, Role::other, {}, {}});
  content.pool_offsets.resize(1);
  EXPECT_EQ(serialize_content(content).error().kind(), ErrorKind::invalid_argument);
  content.tensors[0].name = "a";
  content.tensors[0].dtype = DType::opaque;
  EXPECT_EQ(serialize_content(content).error().kind(), ErrorKind::invalid_argument);  // "U8" is known
  content.tensors[0].dtype_name = "U4";
  EXPECT_TRUE(serialize_content(content).has_value());
  content.metadata = {{"k", "1"}, {"k", "2"}};
  EXPECT_EQ(serialize_content(content).error().kind(), ErrorKind::invalid_argument);
}

TEST(Streams, OmitEmptyPooledAndAliasedTensors) {
  const auto content = parse_content(second(R"(,"pool":0)", R"(,"pool":8)"), {});
  ASSERT_TRUE(content.has_value()) << content.error().message();
  const auto table = derive_streams(*content);
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(table->stream_of, (std::vector<std::optional<std::size_t>>{0, {}, {}, {}}));
  ASSERT_EQ(table->streams.size(), 2U);
  EXPECT_EQ(table->streams[1].dtype, DType::u8);
  EXPECT_EQ(table->streams[1].elements, 8U);
  EXPECT_FALSE(table->streams[1].tensor.has_value());
}

constexpr std::string_view kBases =
    R"("bases":[{"id":"00112233445566778899aabbccddeeff","name":"b"},{"id":"00112233445566778899aabbccddeef0"}])";

void expect_bad_encoding(const std::vector<Bad>& cases, std::size_t stream_count = 2) {
  for (const Bad& bad : cases) {
    const auto parsed = parse_encoding(bad.json, stream_count, {});
    ASSERT_FALSE(parsed.has_value()) << bad.json;
    EXPECT_EQ(error_kind_name(parsed.error().kind()), error_kind_name(bad.kind)) << bad.json;
    EXPECT_THAT(parsed.error().message(), HasSubstr(bad.part)) << bad.json;
  }
}

TEST(Encoding, ReadsTheExampleOfTheSpecification) {
  const std::string json =
      R"({"writer": "bitsnap 0.1.0", "policy": "lossless", "objective": "balanced",
 "bases": [{"id": "00112233445566778899aabbccddeeff", "name": "step-10.bsnap"}],
 "parameters": [16, 300],
 "streams": [
   {"inputs": [{"base": 0, "stream": 3, "element": 0}], "parameters": [1], "reason": "..."},
   {}]})";
  const auto encoding = parse_encoding(json, 2, {});
  ASSERT_TRUE(encoding.has_value()) << encoding.error().message();
  EXPECT_EQ(encoding->bases[0].id, (SnapshotId{0x8899aabbccddeeff, 0x0011223344556677}));
  EXPECT_EQ(encoding->streams[0].inputs, (std::vector<StreamInput>{{0, 3, 0}}));
  EXPECT_EQ(encoding->streams[0].reason, "...");
  EXPECT_EQ(serialize_encoding(*encoding),
            R"({"writer":"bitsnap 0.1.0","policy":"lossless","objective":"balanced",)"
            R"("bases":[{"id":"00112233445566778899aabbccddeeff","name":"step-10.bsnap"}],"parameters":[16,300],)"
            R"("streams":[{"inputs":[{"base":0,"stream":3,"element":0}],"parameters":[1],"reason":"..."},{}]})");
}

TEST(Encoding, OrdersStreamsByRank) {
  constexpr std::string_view json =
      R"({"writer":"w","policy":"p","streams":[{"rank":2,"inputs":[{"stream":1,"element":0}]},{"rank":1},{"rank":2,)"
      R"("inputs":[{"stream":0,"element":7},{"stream":1,"element":0}]}]})";
  const auto encoding = parse_encoding(json, 3, {});
  ASSERT_TRUE(encoding.has_value()) << encoding.error().message();
  EXPECT_EQ(encoding->streams[0].rank, 2);
  EXPECT_EQ(encoding->streams[1].rank, 1);
  EXPECT_EQ(serialize_encoding(*encoding), json);
}

TEST(Encoding, SkipsUnknownKeys) {
  const auto encoding = parse_encoding(
      R"({"new":[[{"a":{"b":[1,2,{}]}}],3],"streams":[{"more":{},"inputs":[{"stream":0,"element":5,"x":[]}],"reason":"r"}],)"
      R"("bases":[{"x":null,"id":"00112233445566778899aabbccddeeff"}],"y":1,"policy":"p"})",
      1, {});
  // Stream 0 has no earlier stream, so the text beside the unknown keys was read.
  ASSERT_FALSE(encoding.has_value());
  EXPECT_THAT(encoding.error().message(), HasSubstr("stream 0: an input refers to stream 0"));
  const auto good = parse_encoding(
      R"({"new":[[{"a":{"b":[1,2,{}]}}],3],"streams":[{"more":{},"reason":"r","z":"s"}],"y":1,"policy":"p"})", 1, {});
  ASSERT_TRUE(good.has_value()) << good.error().message();
  EXPECT_EQ(good->policy, "p");
  EXPECT_EQ(good->streams[0].reason, "r");
}

TEST(Encoding, RejectsInvalidValues) {
  const auto with = [](std::string_view streams, std::string_view more = "") {
    return "{" + std::string(kBases) + R"(,"parameters":[4],"streams":[)" + std::string(streams) + "]" +
           std::string(more) + "}";
  };
  ASSERT_TRUE(parse_encoding(with("{},{}"), 2, {}).has_value());
  expect_bad_encoding({
      {"{}", ErrorKind::corrupt, "'streams' has 0 entries, the content has 2"},
      {with("{}"), ErrorKind::corrupt, "1 entries"},
      {with("{},{},{}"), ErrorKind::corrupt, "more than 2 streams"},
      {with(R"({"inputs":[{"base":2,"stream":0,"element":0}]},{})"), ErrorKind::corrupt,
       "stream 0: an input refers to base 2, the file has 2 bases"},
      {with(R"({},{"inputs":[{"stream":1,"element":0}]})"), ErrorKind::corrupt,
       "stream 1: an input refers to stream 1"},
      {with(R"({"inputs":[{"stream":1,"element":0}]},{})"), ErrorKind::corrupt,
       "stream 0: an input refers to stream 1"},
      {with(R"({"rank":1,"inputs":[{"stream":1,"element":0}]},{"rank":1})"), ErrorKind::corrupt,
       "expected an earlier stream in the order of rank and number"},
      {with(R"({},{"rank":1,"inputs":[{"stream":2,"element":0}]})"), ErrorKind::corrupt, "an input refers to stream 2"},
      {with(R"({"rank":256},{})"), ErrorKind::corrupt, "from 0 to 255"},
      {with(R"({},{"inputs":[{"stream":0}]})"), ErrorKind::corrupt,
       "stream 1: key 'inputs': input 0: key 'element' is missing"},
      {with(R"({},{"inputs":[{"element":0}]})"), ErrorKind::corrupt,
       "stream 1: key 'inputs': input 0: key 'stream' is missing"},
      {with(R"({"parameters":[1]},{})"), ErrorKind::corrupt,
       "stream 0: refers to parameter set 1, the file has 1 sets"},
      {with(R"({"parameters":[4294967296]},{})"), ErrorKind::corrupt, "from 0 to 4294967295"},
      {with(R"({"inputs":{}},{})"), ErrorKind::corrupt, "stream 0: key 'inputs': expected an array"},
      {with(R"({"inputs":[1]},{})"), ErrorKind::corrupt, "stream 0: key 'inputs': input 0: expected an object"},
      {with(R"({"reason":1},{})"), ErrorKind::corrupt, "stream 0: key 'reason': expected a string"},
      {with("1,2"), ErrorKind::corrupt, "stream 0: expected an object"},
      {with("{},{}", R"(,"policy":{})"), ErrorKind::corrupt, "'policy'"},
      {with("{},{}", R"(,"objective":1)"), ErrorKind::corrupt, "'objective'"},
      {R"({"parameters":[4294967296]})", ErrorKind::corrupt, "from 0 to 4294967295"},
      {R"({"bases":[{"id":"00112233445566778899AABBCCDDEEFF"}]})", ErrorKind::corrupt,
       "base 0: key 'id': '00112233445566778899AABBCCDDEEFF' is not 32"},
      {R"({"bases":[{"name":"x"}]})", ErrorKind::corrupt, "base 0: key 'id' is missing"},
      {R"({"streams":[{},{}],"bases":[{"id":"00112233445566778899aabbccddeeff"},{"id":"00112233445566778899aabbccddeeff"}]})",
       ErrorKind::corrupt, "base 00112233445566778899aabbccddeeff appears twice"},
      {R"({"x":{"y":1,"y":2}})", ErrorKind::corrupt, "'y' appears twice"},
  });
}

TEST(Encoding, BoundsItsLists) {
  std::string inputs;
  for (int i = 0; i < 256; ++i) inputs += std::string(i > 0 ? "," : "") + R"({"base":0,"stream":0,"element":0})";
  expect_bad_encoding({{"{" + std::string(kBases) + R"(,"streams":[{"inputs":[)" + inputs + "]}]}", ErrorKind::corrupt,
                        "more than 255 inputs"}},
                      1);
  std::string zeros = "0";
  for (int i = 0; i < 65535; ++i) zeros += ",0";
  expect_bad_encoding({{R"({"parameters":[)" + zeros + "]}", ErrorKind::corrupt, "more than 65535 parameter sets"}}, 0);
}

TEST(Encoding, ReplacesInvalidUtf8InRemarks) {
  Encoding encoding;
  encoding.bases = {{SnapshotId{1, 2}, "caf\xE9.bsnap"}};
  const auto read = parse_encoding(serialize_encoding(encoding), 0, {});
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->bases[0].name, "caf?.bsnap");
}

}  // namespace
}  // namespace bitsnap::container
