// Compares the change-mask kernels at every CPU level with a naive reference: all element sizes, odd lengths, unaligned
// pointers, all densities, no writes outside.
#include "entropy/change_mask.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <bitsnap/cpu.hpp>

#include "entropy/guard_testing.hpp"

namespace bitsnap::entropy {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kMaskLengths[] = {0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 200, 1027};

struct Case {
  std::size_t elements;
  std::size_t element_size;
  unsigned changed_of_16;
};

class ChangeMaskKernels : public testing::TestWithParam<CpuLevel> {
 protected:
  void SetUp() override {
    if (!force_cpu_level(GetParam())) GTEST_SKIP() << "this machine lacks it";
  }
  void TearDown() override { force_cpu_level(detected_cpu_level()); }
};

void check(const Case& given) {
  SCOPED_TRACE(std::to_string(given.elements) + " elements of " + std::to_string(given.element_size) + ", " +
               std::to_string(given.changed_of_16) + " of 16 changed");
  const std::size_t shift = given.elements % 3;
  const std::size_t size = given.elements * given.element_size;
  std::mt19937 random(static_cast<unsigned>(given.elements * 8 + given.element_size));
  Bytes base(shift + size);
  for (std::byte& byte : base) byte = static_cast<std::byte>(random());
  Bytes current = base;
  Bytes expected_mask(mask_bytes(given.elements));
  Bytes expected_values;
  for (std::size_t i = 0; i < given.elements; ++i) {
    std::byte* const element = current.data() + shift + i * given.element_size;
    if (random() % 16 < given.changed_of_16) {
      element[random() % given.element_size] ^= std::byte{0x10};
      expected_mask[i / 8] |= std::byte{1} << (i % 8);
      expected_values.insert(expected_values.end(), element, element + given.element_size);
    }
  }
  const std::size_t expected_count = expected_values.size() / given.element_size;

  Bytes mask(expected_mask.size() + kGuardBytes, kGuard);
  EXPECT_EQ(changed_mask(current.data() + shift, base.data() + shift, given.elements, given.element_size, mask.data()),
            expected_count);
  EXPECT_TRUE(std::equal(expected_mask.begin(), expected_mask.end(), mask.begin()));
  EXPECT_EQ(mask[expected_mask.size()], kGuard);
  EXPECT_EQ(count_changed(mask.data(), given.elements), expected_count);

  Bytes values(expected_values.size() + kGuardBytes, kGuard);
  EXPECT_EQ(gather_changed(current.data() + shift, mask.data(), given.elements, given.element_size, values.data()),
            expected_count);
  EXPECT_TRUE(std::equal(expected_values.begin(), expected_values.end(), values.begin()));
  EXPECT_EQ(std::count(values.begin() + static_cast<std::ptrdiff_t>(expected_values.size()), values.end(), kGuard),
            static_cast<std::ptrdiff_t>(kGuardBytes));

  // Readers must ignore the bits after the last element.
  if (given.elements % 8 != 0) mask[given.elements / 8] |= std::byte{0xff} << (given.elements % 8);
  EXPECT_EQ(count_changed(mask.data(), given.elements), expected_count);
  Bytes out(size + kGuardBytes, kGuard);
  EXPECT_EQ(scatter_changed(base.data() + shift, mask.data(), expected_values.data(), given.elements,
                            given.element_size, out.data()),
            expected_count);
  EXPECT_TRUE(std::equal(current.begin() + static_cast<std::ptrdiff_t>(shift), current.end(), out.begin()));
  EXPECT_EQ(out[size], kGuard);

  EXPECT_EQ(scatter_changed(base.data() + shift, mask.data(), expected_values.data(), given.elements,
                            given.element_size, base.data() + shift),
            expected_count);
  EXPECT_EQ(base, current) << "in place";
}

TEST_P(ChangeMaskKernels, AgreeWithTheReference) {
  for (const std::size_t element_size : kElementSizes) {
    for (const std::size_t elements : kMaskLengths) {
      for (const unsigned changed_of_16 : {0U, 1U, 8U, 16U}) check({elements, element_size, changed_of_16});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ChangeMaskKernels, testing::ValuesIn(kCpuLevels),
                         [](const auto& level) { return std::string(cpu_level_name(level.param)); });

TEST(ChangeMask, ComparesBitsInsteadOfValues) {
  // +0 and -0 differ, and a NaN equals itself.
  const std::uint16_t current[] = {0x0000, 0x7fc1};
  const std::uint16_t base[] = {0x8000, 0x7fc1};
  std::byte mask;
  EXPECT_EQ(
      changed_mask(reinterpret_cast<const std::byte*>(current), reinterpret_cast<const std::byte*>(base), 2, 2, &mask),
      1U);
  EXPECT_EQ(mask, std::byte{1});
}

}  // namespace
}  // namespace bitsnap::entropy
