// What a file may cost by its size: a small file with a large index is refused, and no state that is saved. The limits
// of these tests are a hundredth of the usual ones.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/try.hpp"
#include "container/file_reader.hpp"
#include "container/raw_file_testing.hpp"
#include "container/section.hpp"

namespace bitsnap::container {
namespace {

using ::testing::HasSubstr;

// A file with a compressed index.
Bytes packed(const RawFile& file) {
  Sections sections;
  for (const RawSection& section : file.sections()) {
    sections.at(static_cast<SectionKind>(section.kind)) = section.stored;
  }
  return join_file(file.payloads, pack_sections(sections).value(), file.id());
}

constexpr double kCost = 0.01;
constexpr std::string_view kOneStream = R"({"streams":[{}]})";

Result<std::unique_ptr<FileReader>> open_with(Bytes bytes, double max_cost = kCost) {
  DecodeLimits limits;
  limits.max_cost = max_cost;
  return FileReader::open(std::make_unique<MemoryFile>("x.bsnap", std::move(bytes)), limits);
}

std::string repeat(std::size_t count, const std::function<std::string(std::size_t)>& item) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += (i > 0 ? "," : "") + item(i);
  return text;
}

std::string content_with(std::string_view tree) { return fmt::format(R"({{"tensors":[],"tree":{}}})", tree); }

std::string tensors_of_one_byte(std::size_t count) {
  return repeat(count, [](std::size_t i) {
    return fmt::format(R"({{"name":"{}","dtype":"U8","shape":[1],"role":"other","pool":0}})", i);
  });
}

RawFile with_pool(std::string content) {
  RawFile file;
  file.content = std::move(content);
  file.encoding = kOneStream;
  const Bytes one = bytes_of("1");
  file.add_chunk(1, one, one);
  return file;
}

// Opens the file and reads its tree.
Result<void> read_with(const Bytes& bytes, double max_cost = kCost) {
  BITSNAP_ASSIGN(const auto opened, open_with(bytes, max_cost));
  DecodeLimits limits;
  limits.max_cost = max_cost;
  BITSNAP_TRY(opened->tree(limits));
  return {};
}

void expect_too_costly(const Bytes& bytes, std::string_view limit, double max_cost = kCost) {
  EXPECT_LT(bytes.size(), 40'000U);
  const auto read = read_with(bytes, max_cost);
  ASSERT_FALSE(read.has_value()) << limit;
  EXPECT_EQ(read.error().kind(), ErrorKind::resource_exhausted);
  EXPECT_THAT(read.error().message(), HasSubstr(std::string(limit)));
  EXPECT_THAT(read.error().message(), HasSubstr(fmt::format("--max-cost, now {}, raises", max_cost)));
}

TEST(Cost, OfASmallFileWithALargeIndexIsLimited) {
  RawFile nulls;
  const std::string tree = "[" + repeat(1'000, [](std::size_t) { return "null"; }) + "]";
  nulls.content = content_with(tree);
  expect_too_costly(packed(nulls), "number of values exceeds the limit of 6");
  EXPECT_TRUE(read_with(packed(nulls), 2 * kCost).has_value());
  RawFile large;
  large.content = fmt::format(R"({{"tensors":[{{"name":"a","dtype":"U8","shape":[{}],"role":"other"}}],"tree":{}}})",
                              kChunkElements, tree);
  large.encoding = kOneStream;
  const Bytes payload(kChunkElements);
  large.add_chunk(0, payload, payload);
  EXPECT_TRUE(read_with(packed(large)).has_value());

  const RawFile tensors = with_pool(fmt::format(R"({{"tensors":[{}],"pool":1}})", tensors_of_one_byte(250)));
  expect_too_costly(packed(tensors), "more tensors than the limit of");
  EXPECT_TRUE(read_with(packed(tensors), 2 * kCost).has_value());

  RawFile dimensions;
  dimensions.content = fmt::format(R"({{"tensors":[{}]}})", repeat(40, [](std::size_t i) {
                                     return fmt::format(R"({{"name":"{}","dtype":"U8","shape":[{}],"role":"other"}})",
                                                        i, repeat(200, [](std::size_t) { return "0"; }));
                                   }));
  expect_too_costly(packed(dimensions), "more tensors than the limit of");
  EXPECT_TRUE(read_with(packed(dimensions), 2 * kCost).has_value());

  RawFile spaces;
  spaces.content = content_with(std::string(120'000, ' ') + "null");
  expect_too_costly(packed(spaces), "exceed the limit of 8");
  EXPECT_TRUE(read_with(packed(spaces), 2 * kCost).has_value());
}

TEST(Cost, OfMetadataIsLimited) {
  RawFile metadata;
  metadata.content = fmt::format(R"({{"tensors":[],"metadata":{{{}}}}})",
                                 repeat(250, [](std::size_t i) { return fmt::format(R"("{}":"")", i); }));
  expect_too_costly(packed(metadata), "more metadata than the limit of 1");
  EXPECT_TRUE(read_with(packed(metadata), 2 * kCost).has_value());
}

TEST(Cost, OfIntegersIsLimited) {
  const auto integers = [](std::size_t count, std::size_t digits) {
    RawFile file;
    file.content = content_with(
        "[" + repeat(count, [&](std::size_t) { return R"({"int":")" + std::string(digits, '9') + "\"}"; }) + "]");
    return packed(file);
  };
  expect_too_costly(integers(1, 100'001), "an integer of 100001 digits exceeds the limit of 100000", 2 * kCost);
  expect_too_costly(integers(3, 3'000), "number of values exceeds the limit of 6");
  EXPECT_TRUE(read_with(integers(1, 5'000)).has_value());
}

// Nothing but names is stored: all tensors are parts of a pool that is constant.
TEST(Cost, AllowsALargeStateOfManySmallTensors) {
  constexpr std::size_t kTensors = 16'000;
  const auto entry = [](std::size_t i) {
    return fmt::format(
        R"({{"name":"model.layers.{}.mlp.experts.{}.up_proj.weight","dtype":"F32","shape":[1],"role":"weight","pool":{}}})",
        i / 64, i % 64, 4 * i);
  };
  const auto item = [](std::size_t i) {
    return fmt::format(R"([{},{{"dict":[["step",{{"tensor":{}}}],["lr",0.1]]}}])", i, i);
  };
  RawFile file;
  file.encoding = kOneStream;
  file.content = fmt::format(R"({{"tensors":[{}],"pool":{},"tree":{{"dict":[{}]}}}})", repeat(kTensors, entry),
                             4 * kTensors, repeat(kTensors / 3, item));
  const Bytes pool(4 * kTensors, std::byte{0});
  const Bytes one(1);
  for (std::size_t at = 0; at < pool.size(); at += kChunkElements) {
    file.add_chunk(1, one, ConstByteSpan(pool).subspan(at, std::min<std::size_t>(kChunkElements, pool.size() - at)));
  }
  const Bytes bytes = packed(file);
  EXPECT_LT(bytes.size(), 150'000U);
  const auto opened = open_with(bytes, 1);
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  EXPECT_EQ((*opened)->index().content.tensors.size(), kTensors);
}

}  // namespace
}  // namespace bitsnap::container
