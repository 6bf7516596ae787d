#include "interop/state/shard_assembly.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace bitsnap::interop {
namespace {

using Extents = std::vector<std::uint64_t>;

std::uint64_t volume(const Extents& extent) {
  return std::accumulate(extent.begin(), extent.end(), std::uint64_t{1}, std::multiplies<>());
}

TensorInfo tensor_of(Extents shape) {
  TensorInfo info;
  info.name = "w";
  info.dtype = DType::u16;
  info.dtype_name = "U16";
  info.size_bytes = 2 * volume(shape);
  info.shape = std::move(shape);
  return info;
}

ReadBytes reader_of(std::vector<std::uint16_t> elements) {
  return [held = std::make_shared<const std::vector<std::uint16_t>>(std::move(elements))](std::uint64_t offset,
                                                                                          ByteSpan out) {
    EXPECT_LE(offset + out.size(), 2 * held->size());
    std::memcpy(out.data(), std::as_bytes(std::span(*held)).data() + offset, out.size());
    return Result<void>();
  };
}

// The elements of a box of the tensor whose elements are their own numbers.
std::vector<std::uint16_t> box_of(const Extents& shape, const Extents& offset, const Extents& extent) {
  std::vector<std::uint16_t> elements;
  for (std::uint64_t i = 0; i < volume(extent); ++i) {
    std::uint64_t rest = i;
    std::uint64_t at = 0;
    std::uint64_t stride = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      at += (rest % extent[d] + offset[d]) * stride;
      rest /= extent[d];
      stride *= shape[d];
    }
    elements.push_back(static_cast<std::uint16_t>(at));
  }
  return elements;
}

PartSource part_of(const Extents& shape, Extents offset, Extents extent) {
  ReadBytes read = reader_of(box_of(shape, offset, extent));
  return {tensor::Box{std::move(offset), std::move(extent)}, std::move(read)};
}

// Divides a box at random places until it is in pieces.
void divide(std::mt19937& random, const Extents& shape, const Extents& offset, const Extents& extent, int depth,
            std::vector<PartSource>& parts) {
  const std::size_t axis = random() % shape.size();
  if (depth == 0 || extent[axis] < 2) {
    parts.push_back(part_of(shape, offset, extent));
    return;
  }
  const std::uint64_t cut = 1 + random() % (extent[axis] - 1);
  Extents lower = extent;
  lower[axis] = cut;
  divide(random, shape, offset, lower, depth - 1, parts);
  Extents upper = extent;
  upper[axis] -= cut;
  Extents behind = offset;
  behind[axis] += cut;
  divide(random, shape, behind, upper, depth - 1, parts);
}

TEST(ShardAssemblyTest, AnyRangeOfATensorIsReadFromBoxesOfAnyKind) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    Extents shape(1 + random() % 4);
    for (std::uint64_t& size : shape) size = 1 + random() % 9;
    std::vector<PartSource> parts;
    divide(random, shape, Extents(shape.size()), shape, static_cast<int>(random() % 5), parts);
    // A part that two ranks hold.
    parts.push_back(parts[random() % parts.size()]);
    std::shuffle(parts.begin(), parts.end(), random);
    const Result<TensorSource> tensor = assemble(tensor_of(shape), std::move(parts));
    ASSERT_TRUE(tensor) << tensor.error().message();
    for (int range = 0; range < 20; ++range) {
      const std::uint64_t first = random() % volume(shape);
      std::vector<std::uint16_t> read(1 + random() % (volume(shape) - first));
      ASSERT_TRUE(tensor->read(2 * first, std::as_writable_bytes(std::span(read))));
      for (std::size_t i = 0; i < read.size(); ++i) ASSERT_EQ(read[i], first + i);
    }
  }
}

std::string error_of(const Extents& shape, std::vector<PartSource> parts) {
  const Result<TensorSource> tensor = assemble(tensor_of(shape), std::move(parts));
  return tensor ? "none" : std::string(tensor.error().message());
}

TEST(ShardAssemblyTest, PartsCoverTheTensorOnce) {
  const Extents shape = {4, 6};
  const auto part = [&](Extents offset, Extents extent) {
    PartSource made{{std::move(offset), std::move(extent)}, reader_of({})};
    return made;
  };
  EXPECT_EQ(error_of(shape, {part({0, 0}, {4, 3}), part({0, 3}, {4, 3})}), "none");
  EXPECT_EQ(error_of(shape, {part({0, 0}, {4, 3})}), "tensor 'w' of shape [4, 6]: its parts hold 12 of 24 elements");
  EXPECT_EQ(error_of(shape, {part({0, 0}, {4, 3}), part({0, 2}, {4, 3})}),
            "tensor 'w' of shape [4, 6]: the parts at [0, 0] and [0, 2] overlap");
  EXPECT_EQ(error_of(shape, {part({3, 0}, {2, 6})}),
            "tensor 'w' of shape [4, 6]: the part of shape [2, 6] at [3, 0] does not lie in it");
  EXPECT_EQ(error_of(shape, {part({0}, {4})}),
            "tensor 'w' of shape [4, 6]: the part of shape [4] at [0] does not lie in it");
  EXPECT_EQ(error_of(shape, {part({0, 0}, {0, 6}), part({0, 0}, {4, 6})}), "none");
  EXPECT_EQ(error_of({3, 0}, {}), "none");
  EXPECT_EQ(error_of({UINT64_MAX, 2}, {}), "tensor 'w' of shape [18446744073709551615, 2]: it has too many elements");
}

TEST(ShardAssemblyTest, StridedTensorsAreReadInRowMajorOrder) {
  std::vector<std::uint16_t> memory(60);
  std::iota(memory.begin(), memory.end(), std::uint16_t{0});
  const auto cache = make_strided_cache();
  const auto read_all = [&](const Extents& shape, const Extents& stride, std::uint64_t first) {
    const auto read = row_major(shape, stride, 2, reader_of(memory), cache);
    EXPECT_TRUE(read);
    std::vector<std::uint16_t> elements(volume(shape) - first);
    EXPECT_TRUE((*read)(2 * first, std::as_writable_bytes(std::span(elements))));
    return elements;
  };
  EXPECT_EQ(read_all({2, 3}, {1, 2}, 0), (std::vector<std::uint16_t>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(read_all({2, 3}, {1, 2}, 4), (std::vector<std::uint16_t>{3, 5}));
  EXPECT_EQ(read_all({3, 2}, {0, 7}, 0), (std::vector<std::uint16_t>{0, 7, 0, 7, 0, 7}));
  EXPECT_EQ(read_all({2, 2, 2}, {4, 2, 1}, 3), (std::vector<std::uint16_t>{3, 4, 5, 6, 7}));
  EXPECT_FALSE(row_major({UINT64_MAX, 3}, {UINT64_MAX, 1}, 2, reader_of(memory), cache));
}

}  // namespace
}  // namespace bitsnap::interop
