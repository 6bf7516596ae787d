// Tests of the quantizer clusters against its formula, element by element, and against its bounds.
#include "quantize/clusters.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <random>
#include <set>

#include <bitsnap/tensor.hpp>

#include "base/scratch.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "quantize/quantize_testing.hpp"

namespace bitsnap::quantize {
namespace {

using FloatBits = std::vector<std::uint32_t>;

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();
constexpr ClusterLabels kForms[] = {ClusterLabels::four_bits, ClusterLabels::eight_bits};

ConstByteSpan bytes_of(const FloatBits& floats) { return std::as_bytes(std::span(floats)); }
float number(std::uint32_t bits) { return std::bit_cast<float>(bits); }
bool finite(std::uint32_t bits) { return std::isfinite(number(bits)); }

FloatBits floats_of(const std::vector<float>& numbers) {
  FloatBits bits;
  for (const float x : numbers) bits.push_back(std::bit_cast<std::uint32_t>(x));
  return bits;
}

// -0 is below 0, as in the specification.
bool not_above(float a, float b) { return a < b || (a == b && (std::signbit(a) || !std::signbit(b))); }

// The number of elements that the codec clustered stores as exceptions.
std::size_t exceptions_of(const Clusters& clusters, const FloatBits& tensor) {
  std::vector<codec::ClusterExtent> extents;
  for (std::size_t j = 0; j < clusters.cluster_count(); ++j) {
    const Cluster cluster = clusters.cluster(j);
    if (cluster.has_numbers) extents.push_back({cluster.least, cluster.greatest});
  }
  // Repeated often enough to make the payload smaller than the chunk.
  FloatBits often;
  for (int i = 0; i < 12; ++i) often.insert(often.end(), tensor.begin(), tensor.end());
  codec::EncodeContext context{{.dtype = DType::f32, .elements = often.size()}};
  context.clusters = extents;
  Scratch scratch;
  std::vector<std::byte> out(codec::clustered_encoder().max_encoded_size(DType::f32, often.size()));
  const auto size = codec::clustered_encoder().encode(bytes_of(often), context, out, scratch);
  if (!size || !*size) {
    ADD_FAILURE() << "clustered did not encode the chunk";
    return often.size();
  }
  return load_le<std::uint32_t>(out.data() + 2);
}

struct Fitted {
  FloatBits result;
  ErrorTally tally;
  double bound = 0;
};

// Properties of every tensor, including NaNs.
Fitted expect_promises(ClusterLabels labels, const FloatBits& tensor) {
  const Clusters clusters = fit_clusters(labels, bytes_of(tensor));
  Fitted fitted{.result = {}, .tally = {}, .bound = clusters.absolute_bound()};
  at_every_level_and_float_mode([&] {
    const Clusters here = fit_clusters(labels, bytes_of(tensor));
    ErrorTally tally;
    const FloatBits result = quantized(here, DType::f32, tensor, tally);
    EXPECT_EQ(quantized(here, DType::f32, result), result) << "idempotent";
    if (fitted.result.empty()) fitted.result = result;
    if (fitted.tally.elements == 0) fitted.tally = tally;
    EXPECT_EQ(result, fitted.result) << "differs between levels";
    EXPECT_EQ(tally, fitted.tally) << "differs between levels";
    EXPECT_EQ(here.absolute_bound(), fitted.bound);
    FloatBits numbers;
    std::ranges::copy_if(result, std::back_inserter(numbers), finite);
    if (!numbers.empty()) {
      EXPECT_EQ(exceptions_of(here, numbers), 0U) << "clustered must restore every number";
    }
  });

  std::vector<std::set<std::uint32_t>> members(clusters.cluster_count());
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    if (!finite(tensor[i])) {
      EXPECT_EQ(fitted.result[i], tensor[i]);
      continue;
    }
    // Extents do not overlap, so one of them determines the label.
    const float x = number(tensor[i]);
    std::size_t label = clusters.cluster_count();
    for (std::size_t j = 0; j < clusters.cluster_count(); ++j) {
      const Cluster cluster = clusters.cluster(j);
      if (!cluster.has_numbers || !not_above(cluster.least, x) || !not_above(x, cluster.greatest)) continue;
      EXPECT_EQ(label, clusters.cluster_count()) << "in one cluster only";
      label = j;
    }
    if (label == clusters.cluster_count()) {
      ADD_FAILURE() << x << " is outside all clusters";
      continue;
    }
    members[label].insert(tensor[i]);
    const Cluster cluster = clusters.cluster(label);
    const double offset = static_cast<double>(cluster.least);
    const double code = std::nearbyint((static_cast<double>(x) - offset) / cluster.scale);
    float expected = static_cast<float>(offset + cluster.scale * code);
    if (code == 0) expected = cluster.least;
    if (code == 255) expected = cluster.greatest;
    EXPECT_EQ(fitted.result[i], std::bit_cast<std::uint32_t>(expected)) << x << " with the code " << code;
    EXPECT_LE(std::abs(static_cast<double>(expected) - static_cast<double>(x)), fitted.bound);
  }
  for (std::size_t j = 0; j < clusters.cluster_count(); ++j) {
    const Cluster cluster = clusters.cluster(j);
    EXPECT_EQ(cluster.has_numbers, !members[j].empty());
    if (!cluster.has_numbers) continue;
    EXPECT_TRUE(members[j].contains(std::bit_cast<std::uint32_t>(cluster.least)));
    EXPECT_TRUE(members[j].contains(std::bit_cast<std::uint32_t>(cluster.greatest)));
  }
  EXPECT_LE(fitted.tally.max_absolute, fitted.bound);
  std::set<std::uint32_t> numbers;
  for (const std::uint32_t bits : fitted.result) {
    if (finite(bits)) numbers.insert(bits);
  }
  EXPECT_LE(numbers.size(), 256 * clusters.cluster_count());
  return fitted;
}

FloatBits normal_floats(std::size_t count, float mean, float deviation) {
  std::mt19937_64 random(count);
  std::normal_distribution<float> normal(mean, deviation);
  FloatBits floats;
  for (std::size_t i = 0; i < count; ++i) floats.push_back(std::bit_cast<std::uint32_t>(normal(random)));
  return floats;
}

TEST(Clusters, HaveEqualSizesForNormalElements) {
  for (const ClusterLabels labels : kForms) {
    const FloatBits tensor = normal_floats(4 * kChunkElements + 77, -0.25F, 3.0F);
    const Clusters clusters = fit_clusters(labels, bytes_of(tensor));
    std::vector<double> sizes(clusters.cluster_count());
    for (const std::uint32_t bits : tensor) {
      for (std::size_t j = 0; j < sizes.size(); ++j) {
        const Cluster cluster = clusters.cluster(j);
        if (number(bits) >= cluster.least && number(bits) <= cluster.greatest) {
          ++sizes[j];
          break;
        }
      }
    }
    const double expected = static_cast<double>(tensor.size()) / static_cast<double>(sizes.size());
    for (std::size_t j = 0; j < sizes.size(); ++j) {
      EXPECT_NEAR(sizes[j], expected, 6 * std::sqrt(expected)) << "label " << j;
    }
  }
}

// For a tensor with a mean of nearly 0 and a deviation of nearly 1.
TEST(Clusters, AreDividedAtTheQuantilesOfTheSpecification) {
  std::vector<float> numbers;
  for (int i = -4000; i <= 4000; ++i) numbers.push_back(static_cast<float>(i) / 1000);
  double square = 0;
  for (const float x : numbers) square += static_cast<double>(x) * static_cast<double>(x);
  const double deviation = std::sqrt(square / static_cast<double>(numbers.size()));
  const Clusters clusters = fit_clusters(ClusterLabels::four_bits, bytes_of(floats_of(numbers)));
  const std::array<double, 7> quantiles{0.157311, 0.318639, 0.488776, 0.674490, 0.887147, 1.150349, 1.534121};
  EXPECT_EQ(clusters.cluster(8).least, 0.0F);
  EXPECT_EQ(fit_clusters(ClusterLabels::eight_bits, bytes_of(floats_of(numbers))).cluster(128).least, 0.0F);
  for (std::size_t j = 0; j < quantiles.size(); ++j) {
    const double boundary = quantiles[j] * deviation;
    EXPECT_NEAR(static_cast<double>(clusters.cluster(9 + j).least), boundary, 0.0011);
    EXPECT_GE(static_cast<double>(clusters.cluster(9 + j).least), boundary);
    EXPECT_NEAR(static_cast<double>(clusters.cluster(6 - j).greatest), -boundary, 0.0011);
    EXPECT_LT(static_cast<double>(clusters.cluster(6 - j).greatest), -boundary);
  }
}

TEST(Clusters, HaveTheQuantilesOfTheNormalDistribution) {
  const ClusterMoments moments{.finite = 4, .sum = 0, .sum_square = 4};  // mean 0, deviation 1
  for (const std::size_t clusters : {16U, 256U}) {
    const ClusterBoundaries boundaries = boundaries_of(clusters, {&moments, 1});
    for (std::size_t j = 1; j < clusters; ++j) {
      const std::int32_t ordinal = boundaries.ordinals[j - 1];
      const auto bits = static_cast<std::uint32_t>(ordinal ^ ((ordinal >> 31) & 0x7fffffff));
      const double quantile = static_cast<double>(number(bits));
      const double share = std::erfc(-quantile / std::sqrt(2.0)) / 2;
      EXPECT_NEAR(share, static_cast<double>(j) / static_cast<double>(clusters), 3e-7) << j << " of " << clusters;
    }
  }
}

TEST(Clusters, MatchTheExampleOfTheSpecification) {
  const FloatBits tensor = floats_of({1, 1.3F, 2, 1000, -1000});
  const Clusters clusters = fit_clusters(ClusterLabels::four_bits, bytes_of(tensor));
  EXPECT_EQ(clusters.cluster(8).least, 1);
  EXPECT_EQ(clusters.cluster(8).greatest, 2);
  EXPECT_EQ(clusters.cluster(8).scale, 1.0 / 255);
  EXPECT_TRUE(clusters.cluster(0).has_numbers && clusters.cluster(15).has_numbers);
  EXPECT_FALSE(clusters.cluster(1).has_numbers);
  FloatBits expected = tensor;
  expected[1] = 0x3fa62626;
  EXPECT_EQ(quantized(clusters, DType::f32, tensor), expected);
}

TEST(Clusters, KeepTheirEndsIfOneIsFarSmaller) {
  const FloatBits tensor = floats_of({-1, 1e-30F, 1000, -990});
  const Clusters clusters = fit_clusters(ClusterLabels::four_bits, bytes_of(tensor));
  EXPECT_EQ(clusters.cluster(7).least, -1);
  EXPECT_EQ(clusters.cluster(7).greatest, 1e-30F);
  EXPECT_EQ(quantized(clusters, DType::f32, tensor), tensor);
}

TEST(Clusters, KeepTheirBoundsOnMoments) {
  std::mt19937_64 random(6);
  std::lognormal_distribution<float> squares(-30, 8);
  FloatBits second;
  for (std::size_t i = 0; i < 20000; ++i) second.push_back(std::bit_cast<std::uint32_t>(squares(random)));
  for (const ClusterLabels labels : kForms) {
    expect_promises(labels, normal_floats(20000, 1e-7F, 1e-5F));
    expect_promises(labels, second);
    FloatBits outliers = normal_floats(20000, 0, 1e-3F);
    for (std::size_t i = 0; i < outliers.size(); i += 1024) outliers[i] = std::bit_cast<std::uint32_t>(1e6F);
    expect_promises(labels, outliers);
    expect_promises(labels, edge_floats(1000));
  }
}

TEST(Clusters, ReproduceTheErrorsOfBitSnapAndOfMoreClusters) {
  const FloatBits tensor = normal_floats(100000, 0, 1);
  const Fitted few = expect_promises(ClusterLabels::four_bits, tensor);
  const Fitted many = expect_promises(ClusterLabels::eight_bits, tensor);
  EXPECT_LT(many.tally.mean_square(), few.tally.mean_square() / 20);
  EXPECT_GT(few.tally.changed, tensor.size() / 2);
}

TEST(Clusters, AcceptElementsWithHardlyAnyRange) {
  const float next = std::nextafter(1.0F, 2.0F);
  for (const ClusterLabels labels : kForms) {
    for (const std::vector<float>& numbers : std::vector<std::vector<float>>{
             {},
             {7.5F},
             std::vector<float>(5000, -3e-41F),
             std::vector<float>(5000, 0.1F),
             std::vector<float>(70, kLargest),
             {1, next, 1, next, 1},
             {0, kTiny, 2 * kTiny, 3 * kTiny, -kTiny, 300 * kTiny, 301 * kTiny},
             {-0.0F, -0.0F},
         }) {
      const FloatBits tensor = floats_of(numbers);
      const Fitted fitted = expect_promises(labels, tensor);
      EXPECT_EQ(fitted.result, tensor) << "exact";
      EXPECT_EQ(fitted.tally.changed, 0U);
    }
  }
  // If both zeros are in one cluster, the lower one represents them.
  const Fitted zeros = expect_promises(ClusterLabels::four_bits, floats_of({0.0F, -0.0F, 1.0F, -1.0F}));
  EXPECT_EQ(zeros.tally.max_absolute, 0);
}

TEST(Clusters, AcceptRangesThatOverflowF32) {
  std::vector<float> numbers{kLargest, -kLargest, 0, 1, -1, kTiny};
  for (int i = 0; i < 3000; ++i) numbers.push_back(kLargest * (static_cast<float>(i - 1500) / 1500));
  for (const ClusterLabels labels : kForms) {
    const Fitted fitted = expect_promises(labels, floats_of(numbers));
    EXPECT_EQ(fitted.tally.finite, numbers.size());
    for (const std::uint32_t bits : fitted.result) EXPECT_TRUE(finite(bits));
    expect_promises(labels, floats_of({kLargest, -kLargest}));
  }
}

TEST(Clusters, IgnoreInfinitiesAndNaNsInTheFit) {
  FloatBits tensor = normal_floats(5000, 2, 0.5F);
  const FloatBits alone = quantized(fit_clusters(ClusterLabels::four_bits, bytes_of(tensor)), DType::f32, tensor);
  const FloatBits special{0x7f800000, 0xff800000, 0x7f800001, 0xffc12345, 0x7fffffff, 0xffffffff};
  // At the end, so that the numbers stay in their lanes.
  tensor.insert(tensor.end(), special.begin(), special.end());
  const Fitted fitted = expect_promises(ClusterLabels::four_bits, tensor);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), fitted.result.begin()));
  for (const ClusterLabels labels : kForms) EXPECT_EQ(expect_promises(labels, special).result, special);
}

TEST(Clusters, KeepUnseenElementsOutsideTheirCluster) {
  const Clusters clusters = fit_clusters(ClusterLabels::four_bits, bytes_of(floats_of({1, 2, 3})));
  EXPECT_EQ(quantized(clusters, DType::f32, floats_of({-5, 100, 2.5F, 1e38F})), floats_of({-5, 100, 2.5F, 1e38F}));
}

TEST(Clusters, AreTheSameForEveryPartOfAFit) {
  FloatBits tensor = normal_floats(3 * kChunkElements + 12345, 1, 1);
  std::ranges::sort(tensor);  // so that chunks differ
  for (const ClusterLabels labels : kForms) {
    const Clusters whole = fit_clusters(labels, bytes_of(tensor));
    std::vector<ClusterMoments> moments;
    for (std::size_t first = 0; first < tensor.size(); first += kChunkElements) {
      moments.push_back(cluster_moments(
          bytes_of(tensor).subspan(4 * first, 4 * std::min<std::size_t>(kChunkElements, tensor.size() - first))));
    }
    ClusterFit fit(labels, moments);
    const ClusterFit none = fit;
    // Uneven parts, each in its own fit, merged in reverse order.
    std::vector<ClusterFit> fits;
    for (std::size_t first = 0; first < tensor.size(); first += 99991) {
      ClusterFit part = none;
      part.add(bytes_of(tensor).subspan(4 * first, 4 * std::min<std::size_t>(99991, tensor.size() - first)));
      fits.push_back(part);
    }
    std::ranges::reverse(fits);
    for (const ClusterFit& part : fits) fit.merge(part);
    const Clusters merged = fit.clusters();
    for (std::size_t j = 0; j < whole.cluster_count(); ++j) {
      EXPECT_EQ(merged.cluster(j).least, whole.cluster(j).least);
      EXPECT_EQ(merged.cluster(j).greatest, whole.cluster(j).greatest);
      EXPECT_EQ(merged.cluster(j).scale, whole.cluster(j).scale);
    }
    ErrorTally tally;
    const FloatBits result = quantized(whole, DType::f32, tensor, tally);
    ErrorTally parts_tally;
    FloatBits parts;
    for (std::size_t first = 0; first < tensor.size(); first += kChunkElements) {
      const auto begin = tensor.begin() + static_cast<std::ptrdiff_t>(first);
      const auto size = static_cast<std::ptrdiff_t>(std::min<std::size_t>(kChunkElements, tensor.size() - first));
      ErrorTally part_tally;
      const FloatBits part = quantized(merged, DType::f32, FloatBits(begin, begin + size), part_tally);
      parts.insert(parts.end(), part.begin(), part.end());
      parts_tally.merge(part_tally);
    }
    EXPECT_EQ(parts, result);
    EXPECT_EQ(parts_tally, tally);
    EXPECT_EQ(quantized(whole, DType::f32, FloatBits(tensor.begin() + 5, tensor.begin() + 1500)),
              FloatBits(result.begin() + 5, result.begin() + 1500));
  }
}

TEST(Clusters, AreFittedTheSameAtEveryLevel) {
  const FloatBits tensor = edge_floats(1001);
  const ClusterMoments expected = cluster_moments(bytes_of(tensor));
  // Moments whose clusters end exactly at the boundaries.
  const ClusterMoments moments{.finite = 7, .sum = 0.1, .sum_square = 3.3};
  FloatBits ends;
  const ClusterBoundaries boundaries = boundaries_of(16, {&moments, 1});
  for (std::size_t j = 0; j < 15; ++j) {
    for (const std::int32_t ordinal : {boundaries.ordinals[j] - 1, boundaries.ordinals[j]}) {
      ends.push_back(static_cast<std::uint32_t>(ordinal ^ ((ordinal >> 31) & 0x7fffffff)));
    }
  }
  const FloatBits subnormal{1, 301};
  const double expected_scale = 300 * static_cast<double>(kTiny) / 255;
  at_every_level_and_float_mode([&] {
    const ClusterMoments found = cluster_moments(bytes_of(tensor));
    EXPECT_EQ(found.finite, expected.finite);
    EXPECT_EQ(found.sum, expected.sum);
    EXPECT_EQ(found.sum_square, expected.sum_square);
    ClusterFit fit(ClusterLabels::four_bits, {&moments, 1});
    fit.add(bytes_of(ends));
    const Clusters clusters = fit.clusters();
    for (std::size_t j = 1; j < 16; ++j) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(clusters.cluster(j).least), ends[2 * j - 1]) << j;
      EXPECT_EQ(std::bit_cast<std::uint32_t>(clusters.cluster(j - 1).greatest), ends[2 * j - 2]) << j;
    }
    ClusterFit narrow(ClusterLabels::four_bits, {&moments, 1});
    narrow.add(bytes_of(subnormal));
    EXPECT_EQ(narrow.clusters().cluster(7).scale, expected_scale);
  });
}

TEST(Clusters, KeepTheirBoundsOnArbitraryElements) {
  const bool holds = rc::check("clusters keep their bounds", [] {
    // Numbers of few or all exponents, with few or many mantissas.
    const auto count = *rc::gen::inRange<std::size_t>(0, 600);
    const auto exponent = *rc::gen::inRange<std::uint32_t>(0, 256);
    const auto exponents = *rc::gen::elementOf(std::vector<std::uint32_t>{1, 2, 3, 20, 256});
    const auto mantissas = *rc::gen::elementOf(std::vector<std::uint32_t>{3, 0xff, 0x7ff, 0x400007, 0x7fffff});
    const auto signs = *rc::gen::elementOf(std::vector<std::uint32_t>{0, 0x80000000});
    const auto seed = *rc::gen::arbitrary<std::uint32_t>();
    std::mt19937 random(seed);
    FloatBits tensor;
    for (std::size_t i = 0; i < count; ++i) {
      const auto own = static_cast<std::uint32_t>((exponent + random() % exponents) % 256);
      tensor.push_back((own << 23) | static_cast<std::uint32_t>(random() & mantissas) |
                       static_cast<std::uint32_t>(random() & signs));
    }
    expect_promises(*rc::gen::elementOf(std::vector<ClusterLabels>(std::begin(kForms), std::end(kForms))), tensor);
    RC_ASSERT(!testing::Test::HasFailure());
  });
  EXPECT_TRUE(holds);
}

TEST(Clusters, RefuseOtherDtypesAndOtherTensors) {
  FloatBits floats = floats_of({1, 2, 3});
  const Clusters clusters = fit_clusters(ClusterLabels::four_bits, bytes_of(floats));
  const ByteSpan bytes = std::as_writable_bytes(std::span(floats));
  ErrorTally tally;
  const Beside other{DType::f32, bytes};
  EXPECT_EQ(clusters.quantize(DType::bf16, bytes, {}, &tally).error().kind(), ErrorKind::invalid_argument);
  EXPECT_FALSE(clusters.quantize(DType::f32, bytes.first(5), {}, &tally));
  EXPECT_FALSE(clusters.quantize(DType::f32, bytes, {&other, 1}, &tally));
  EXPECT_EQ(tally, ErrorTally{});
}

}  // namespace
}  // namespace bitsnap::quantize
