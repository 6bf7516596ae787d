// Tests of boxes: intersections and coverage, judged by counting elements.
#include "tensor/box.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace bitsnap::tensor {
namespace {

using Extents = std::vector<std::uint64_t>;

TEST(Boxes, IntersectWhereTheyHaveElementsInCommon) {
  EXPECT_EQ(intersection({{0, 0}, {2, 3}}, {{1, 1}, {5, 1}}), (Box{{1, 1}, {1, 1}}));
  EXPECT_EQ(intersection({{0, 0}, {2, 3}}, {{2, 0}, {1, 3}}), std::nullopt);
  EXPECT_EQ(intersection({{0}, {0}}, {{0}, {4}}), std::nullopt);
  EXPECT_EQ(intersection({{}, {}}, {{}, {}}), (Box{{}, {}}));
}

TEST(Boxes, LieInATensorOfAsManyDimensions) {
  EXPECT_TRUE(lies_in({{2, 0}, {2, 3}}, Extents{4, 3}));
  EXPECT_FALSE(lies_in({{3, 0}, {2, 3}}, Extents{4, 3}));
  EXPECT_FALSE(lies_in({{~std::uint64_t{0}, 0}, {2, 3}}, Extents{4, 3}));
  EXPECT_FALSE(lies_in({{2}, {2}}, Extents{4, 3}));
}

TEST(Boxes, CoverATensorIfEveryElementIsInOneOfThem) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const Extents shape = {1 + random() % 4, 1 + random() % 4, 1 + random() % 3};
    std::vector<Box> boxes(1 + random() % 4);
    std::vector<int> counts(shape[0] * shape[1] * shape[2]);
    for (Box& box : boxes) {
      for (const std::uint64_t size : shape) {
        box.offset.push_back(random() % size);
        box.extent.push_back(1 + random() % (size - box.offset.back()));
      }
      for (std::size_t i = 0; i < counts.size(); ++i) {
        const Box element = {{i / (shape[1] * shape[2]), i / shape[2] % shape[1], i % shape[2]}, {1, 1, 1}};
        if (intersection(box, element)) ++counts[i];
      }
    }
    std::ranges::sort(boxes);
    const Coverage coverage = cover(boxes);
    const auto most = std::ranges::max(counts);
    ASSERT_EQ(coverage.overlap.has_value(), most > 1);
    if (most <= 1) {
      ASSERT_EQ(coverage.covered, static_cast<std::uint64_t>(std::ranges::count(counts, 1)));
    }
  }
}

TEST(Boxes, AreNotComparedForEver) {
  std::vector<Box> boxes;
  for (std::uint64_t i = 0; i < 10'000; ++i) boxes.push_back({{0, i}, {1, 1}});
  EXPECT_TRUE(cover(boxes).has_too_many);
}

}  // namespace
}  // namespace bitsnap::tensor
