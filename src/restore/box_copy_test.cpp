// Tests of BoxCopy against copying element by element.
#include "restore/box_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>

namespace bitsnap::restore {
namespace {

// A random box of a random tensor, and memory for it whose dimensions have any order and direction, and gaps.
struct Case {
  std::vector<std::uint64_t> shape;
  tensor::Box box;
  std::uint64_t item = 1;
  std::vector<std::int64_t> strides;
  std::vector<std::byte> memory;
  std::size_t first = 0;  // of the first element of the box in the memory

  explicit Case(std::mt19937& random) {
    const std::size_t dimensions = random() % 5;
    for (std::size_t i = 0; i < dimensions; ++i) {
      shape.push_back(1 + random() % 5);
      const bool is_whole = random() % 2 == 0;
      box.offset.push_back(is_whole ? 0 : random() % shape[i]);
      box.extent.push_back(is_whole ? shape[i] : 1 + random() % (shape[i] - box.offset[i]));
    }
    constexpr std::uint64_t kItems[] = {1, 2, 3, 4, 8, 16};
    item = kItems[random() % 6];
    std::vector<std::size_t> order(dimensions);
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
    strides.resize(dimensions);
    std::uint64_t bytes = item;
    for (std::size_t i = dimensions; i-- > 0;) {
      if (random() % 4 == 0) bytes += item;  // a gap
      strides[order[i]] = static_cast<std::int64_t>(bytes);
      bytes *= box.extent[order[i]];
    }
    for (std::size_t i = 0; i < dimensions; ++i) {
      if (random() % 4 != 0) continue;
      first += static_cast<std::size_t>(strides[i]) * (box.extent[i] - 1);
      strides[i] = -strides[i];
    }
    memory.resize(bytes, std::byte{0xEE});
  }

  [[nodiscard]] std::uint64_t elements() const {
    return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
  }
  // Where a byte of the tensor belongs in the memory; nullopt: it is outside of the box.
  [[nodiscard]] std::optional<std::size_t> place(std::uint64_t byte) const {
    auto at = static_cast<std::int64_t>(first + byte % item);
    std::uint64_t element = byte / item;
    for (std::size_t i = shape.size(); i-- > 0;) {
      const std::uint64_t index = element % shape[i];
      element /= shape[i];
      if (index < box.offset[i] || index - box.offset[i] >= box.extent[i]) return std::nullopt;
      at += static_cast<std::int64_t>(index - box.offset[i]) * strides[i];
    }
    return static_cast<std::size_t>(at);
  }
  BoxCopy copier() { return BoxCopy(shape, box, item, memory.data() + first, strides); }
};

TEST(BoxCopyTest, CopiesWhatIsInTheBoxOfAnyRangeOfBytes) {
  std::mt19937 random(3);
  for (int round = 0; round < 5000; ++round) {
    Case each(random);
    std::vector<std::byte> tensor(each.elements() * each.item);
    for (std::byte& byte : tensor) byte = static_cast<std::byte>(random());
    std::vector<std::byte> expected = each.memory;
    const BoxCopy box = each.copier();
    std::uint64_t copied = 0;
    std::uint64_t wanted = 0;
    // In random pieces, some of which are left out.
    for (std::uint64_t begin = 0; begin < tensor.size();) {
      const std::uint64_t size = std::min<std::uint64_t>(1 + random() % 40, tensor.size() - begin);
      if (random() % 4 != 0) {
        copied += box.copy(begin, ConstByteSpan(tensor).subspan(begin, size));
        for (std::uint64_t byte = begin; byte < begin + size; ++byte) {
          const auto place = each.place(byte);
          if (!place) continue;
          expected[*place] = tensor[byte];
          ++wanted;
        }
      }
      begin += size;
    }
    ASSERT_EQ(each.memory, expected) << "round " << round;
    ASSERT_EQ(copied, wanted);
  }
}

TEST(BoxCopyTest, FindsBytesAndRuns) {
  std::mt19937 random(4);
  for (int round = 0; round < 3000; ++round) {
    Case each(random);
    const BoxCopy box = each.copier();
    const std::uint64_t bytes = each.elements() * each.item;
    const std::uint64_t begin = random() % bytes;
    const std::uint64_t end = begin + 1 + random() % (bytes - begin);
    std::uint64_t next = begin;
    while (next < bytes && !each.place(next)) ++next;
    ASSERT_EQ(box.next(begin), next < bytes ? std::optional(next) : std::nullopt);

    const auto run = box.only_run(begin, end);
    if (!run) continue;
    for (std::uint64_t byte = begin; byte < end; ++byte) {
      const bool is_in_run = byte >= run->begin && byte < run->begin + run->size;
      const auto place = each.place(byte);
      ASSERT_EQ(place.has_value(), is_in_run);
      if (is_in_run) {
        ASSERT_EQ(each.memory.data() + *place, run->out + (byte - run->begin));
      }
    }
  }
}

TEST(BoxCopyTest, ARowIsOneRun) {
  std::vector<std::byte> memory(40);
  const std::vector<std::uint64_t> shape = {6, 5};
  const BoxCopy rows(shape, {{2, 0}, {2, 5}}, 4, memory.data(), std::vector<std::int64_t>{20, 4});
  const auto run = rows.only_run(0, 120);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->begin, 40U);
  EXPECT_EQ(run->size, 40U);
  const BoxCopy columns(shape, {{0, 1}, {6, 1}}, 4, memory.data(), std::vector<std::int64_t>{4, 4});
  EXPECT_FALSE(columns.only_run(0, 120));
  EXPECT_TRUE(columns.only_run(0, 20));
}

}  // namespace
}  // namespace bitsnap::restore
