// Tests of clustered: it restores every number of every cluster, its sizes, its exceptions, and its independence of the
// floating-point mode.
#include "codec/clustered/clustered.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <bitsnap/tensor.hpp>

#include "codec/builtin_codecs.hpp"
#include "codec/clustered/clustered_testing.hpp"
#include "codec/trained_like_testing.hpp"

namespace bitsnap::codec {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();

TestChunk chunk_of(const Floats& floats, const std::vector<ClusterExtent>& clusters) {
  TestChunk chunk{.dtype = DType::f32, .data = std::vector<std::byte>(floats.size() * sizeof(float)), .base = {}};
  std::memcpy(chunk.data.data(), floats.data(), chunk.data.size());
  chunk.clusters = clusters;
  return chunk;
}

class Clustered : public CodecTest {
 protected:
  Clustered() : CodecTest(clustered_encoder()) {}

  std::size_t exceptions_of(const TestChunk& chunk) {
    return load_le<std::uint32_t>(expect_round_trip(chunk).data() + 2);
  }
};

TEST_F(Clustered, TakesTwelveOrSixteenBitsPerElementAndTheTable) {
  for (const std::size_t clusters : {1U, 2U, 15U, 16U, 17U, 100U, 256U}) {
    for (const std::size_t elements : {std::size_t{1600}, std::size_t{1601}, std::size_t{70'001}, kChunkElements}) {
      SCOPED_TRACE(clusters);
      const TestChunk chunk = clustered_chunk(elements, normal_clusters(clusters, 1), elements);
      const std::size_t labels = clusters <= 16 ? (elements + 1) / 2 : elements;
      at_every_level([&] {
        const std::size_t size = expect_round_trip(chunk).size();
        // With few elements, some clusters may be unused.
        const std::size_t most = 6 + 8 * clusters + labels + elements;
        EXPECT_LE(size, most);
        EXPECT_GE(size, elements > 70'000 ? most : most - 40);
      });
    }
  }
}

TEST_F(Clustered, StoresTheUsedClustersOnly) {
  const std::vector<ClusterExtent> all = normal_clusters(256, 2);
  for (const std::size_t few : {1U, 3U, 16U, 17U}) {
    std::vector<ClusterExtent> some;
    for (std::size_t i = 0; i < few; ++i) some.push_back(all[5 + 14 * i]);
    TestChunk chunk = clustered_chunk(5000, some, few);
    const std::vector<std::byte> alone = expect_round_trip(chunk);
    chunk.clusters = all;
    at_every_level([&] { EXPECT_EQ(expect_round_trip(chunk), alone); });
  }
}

TEST_F(Clustered, RestoresEveryNumberOfEveryCluster) {
  const float next = std::nextafter(1.0F, 2.0F);
  const std::vector<std::vector<ClusterExtent>> all{
      {{-kLargest, kLargest}},
      {{-kLargest, -1e30F}, {-1, 1}, {1e30F, kLargest}},
      {{-0.0F, 255 * kTiny}},
      {{-0.0F, 0.0F}, {kTiny, kTiny}, {2 * kTiny, 3 * kTiny}, {1, next}},
      {{-1e-30F, 1e30F}},
      {{-1, 1e-30F}},
      {{0, 1000 * kTiny}, {1, 1 + 3 * (next - 1)}, {2, 2 + 340 * (next - 1)}, {1e10F, 3e38F}},
      normal_clusters(16, 3),
      normal_clusters(256, 4),
  };
  for (const auto& clusters : all) {
    Floats numbers;
    for (const ClusterExtent& cluster : clusters) {
      for (unsigned code = 0; code < 256; ++code) {
        if (code == 0 || code == 255 || cluster.least < cluster.greatest) {
          numbers.push_back(clustered_number(cluster, code));
        }
      }
    }
    // +0 has the code of -0 if a cluster contains both.
    if (clusters.size() == 4 && clusters[0].greatest == 0) numbers[1] = -0.0F;
    const Floats once = numbers;
    for (int i = 0; i < 20; ++i) numbers.insert(numbers.end(), once.begin(), once.end());
    at_every_level([&] { EXPECT_EQ(exceptions_of(chunk_of(numbers, clusters)), 0U); });
  }
}

// At every place: zeros, infinities, NaNs, and numbers outside all clusters.
TEST_F(Clustered, StoresNumbersOutsideAllClustersAsExceptions) {
  const Floats specials = {0.0F,
                           -0.0F,
                           kInfinity,
                           -kInfinity,
                           kNaN,
                           std::bit_cast<float>(0x7fffffffU),
                           std::bit_cast<float>(0xffffffffU),
                           std::bit_cast<float>(0xff812345U),
                           kTiny,
                           kLargest,
                           -1.0F};
  for (const std::size_t clusters : {1U, 5U, 16U, 255U, 256U}) {
    TestChunk chunk = clustered_chunk(9'001, normal_clusters(clusters, 5), 6);
    TestRandom random(7);
    for (int i = 0; i < 300; ++i) {
      const float special = specials[random.below(specials.size())];
      std::memcpy(chunk.data.data() + random.below(9'001) * sizeof(float), &special, sizeof special);
    }
    at_every_level([&] { EXPECT_GT(exceptions_of(chunk), 250U); });
  }
  // Numbers within a cluster, but between two codes.
  Floats between{0, 0.3F, 1, 255, 254.5F};
  between.resize(40, 7);
  at_every_level([&] { EXPECT_EQ(exceptions_of(chunk_of(between, {{0, 255}})), 2U); });
}

TEST_F(Clustered, RefusesChunksWithoutClusters) {
  TestChunk chunk = clustered_chunk(20'000, {{0, 1}, {2, 3}}, 8);
  const auto is_estimated = [&] {
    const TestSurroundings surroundings(chunk);
    return clustered_encoder()
        .analyze(chunk.data, surroundings.context(), chunk.elements(), scratch_)
        .value()
        .has_value();
  };
  EXPECT_TRUE(is_estimated());
  for (const std::vector<ClusterExtent>& clusters : std::vector<std::vector<ClusterExtent>>{
           {},
           {{2, 3}, {0, 1}},
           {{0, 2}, {2, 3}},
           {{1, 0}},
           {{0.0F, -0.0F}},
           {{0, kInfinity}},
           {{-kInfinity, 0}},
           {{0, kNaN}},
           {{-kNaN, 3}},
           std::vector<ClusterExtent>(257, {0, 1}),
           {{10, 11}},
       }) {
    chunk.clusters = clusters;
    EXPECT_FALSE(is_estimated());
    EXPECT_FALSE(encode_test_chunk(clustered_encoder(), chunk, scratch_));
  }
}

TEST_F(Clustered, EstimatesThePayloadSize) {
  for (const std::size_t clusters : {16U, 256U}) {
    TestChunk chunk = clustered_chunk(kChunkElements, normal_clusters(clusters, 9), 10);
    for (const bool has_exceptions : {false, true}) {
      if (has_exceptions) {
        for (std::size_t i = 0; i < kChunkElements; i += 5) std::memset(chunk.data.data() + 4 * i, 0xff, 4);
      }
      const TestSurroundings surroundings(chunk);
      const auto estimate =
          clustered_encoder().analyze(chunk.data, surroundings.context(), chunk.elements(), scratch_).value();
      ASSERT_TRUE(estimate);
      const auto size = static_cast<double>(expect_round_trip(chunk).size());
      EXPECT_NEAR(static_cast<double>(estimate->payload_bytes), size, has_exceptions ? 0.02 * size : 0);
    }
  }
}

TEST_F(Clustered, DoesNotDependOnTheFloatMode) {
  const TestChunk chunk = clustered_chunk(30'000, {{-1, -0.5F}, {0, 9999 * kTiny}, {1e-38F, 1e-37F}, {3, 5}}, 11);
  EXPECT_EQ(exceptions_of(chunk), 0U);
  expect_same_in_every_float_mode(chunk);
}

TEST_F(Clustered, ReadsTheExampleOfItsSpec) {
  const Floats expected{1, std::bit_cast<float>(0x3fa62626U), 2, 1000, kInfinity, 1};
  const std::vector<std::byte> payload =
      hex_bytes("04 01 01000000  0000803F 00000040  00007A44 00007A44  04000000 0000807F  00 10 00  00 4C FF 00 00 00");
  const TestChunk chunk = chunk_of(expected, {});
  at_every_level([&] {
    const auto read = decode_test_chunk(clustered_decoder(), payload, chunk, scratch_);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(*read, chunk.data);
  });
  // The encoder writes this if there are enough elements.
  Floats more = expected;
  more.resize(40, 1);
  const std::vector<std::byte> written = expect_round_trip(chunk_of(more, {{1, 2}, {1000, 1000}}));
  EXPECT_TRUE(std::equal(payload.begin(), payload.begin() + 33, written.begin()));
}

TEST_F(Clustered, RejectsInvalidPayloads) {
  for (const std::size_t clusters : {3U, 17U}) {
    TestChunk chunk = clustered_chunk(4001, normal_clusters(clusters, 12), 13);
    for (const std::size_t i : {7U, 4000U}) std::memset(chunk.data.data() + 4 * i, 0xff, 4);
    const std::vector<std::byte> good = expect_round_trip(chunk);
    ASSERT_EQ(good[2], std::byte{2}) << "two exceptions";
    const std::size_t table = 6;
    const std::size_t places = table + 8 * clusters;
    const std::size_t labels = places + 16;
    const auto expect_changed_corrupt = [&](std::size_t at, std::uint32_t word, std::size_t size, const char* what) {
      std::vector<std::byte> payload = good;
      std::memcpy(payload.data() + at, &word, size);
      SCOPED_TRACE(what);
      expect_refused(payload, chunk, "");
    };
    for (const std::uint32_t bits : {0U, 1U, 5U, 16U, 255U}) expect_changed_corrupt(0, bits, 1, "bits of a label");
    for (const std::uint32_t word : {0x7f800000U, 0x7fc00000U, 0x80000000U, 0xff800000U, 0xffffffffU}) {
      expect_changed_corrupt(table + 8, word, 4, "a least number that is not finite or not ascending");
    }
    expect_changed_corrupt(table + 4, 0xff7fffff, 4, "a greatest number below the least");
    expect_changed_corrupt(places - 4, 0x7f800000, 4, "an infinite greatest number");
    expect_changed_corrupt(2, 4002, 4, "more exceptions than elements");
    expect_changed_corrupt(places, 4000, 4, "a repeated exception");
    expect_changed_corrupt(places + 4, 6, 4, "exceptions out of order");
    expect_changed_corrupt(places + 4, 4001, 4, "an exception after the last element");
    expect_changed_corrupt(labels + 100, clusters <= 16 ? 0x30 : 17, 1, "a label without a cluster");
    if (clusters <= 16) {
      expect_changed_corrupt(labels + 2000, 0x10, 1, "bits after the last label");
      std::vector<std::byte> many = good;
      many[1] = std::byte{16};
      expect_refused(many, chunk, "17 clusters, expected at most 16");
    }
  }
}

TEST_F(Clustered, AcceptsF32WithoutInputsOnly) {
  const Input base{InputKind::base, DType::f32, {}};
  const Input peer{InputKind::peer, DType::f32, {}};
  EXPECT_TRUE(clustered_decoder().accepts(DType::f32, {}));
  EXPECT_FALSE(clustered_decoder().accepts(DType::f32, {&base, 1}));
  EXPECT_FALSE(clustered_decoder().accepts(DType::f32, {&peer, 1}));
  EXPECT_FALSE(clustered_decoder().accepts(DType::bf16, {}));
}

}  // namespace
}  // namespace bitsnap::codec
