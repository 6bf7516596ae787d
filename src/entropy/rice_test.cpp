// Tests of Rice-coded lists: round trips, edges, and reading beyond the end.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "entropy/rice_encode.hpp"

namespace bitsnap::entropy {
namespace {

std::vector<std::byte> written(const std::vector<std::uint32_t>& numbers, unsigned parameter, unsigned width) {
  std::vector<std::byte> bytes(numbers.size() * 8 + kRiceWritableBehind);
  RiceWriter writer(bytes.data());
  for (const std::uint32_t number : numbers) writer.put(number, parameter, width);
  bytes.resize(static_cast<std::size_t>(writer.end() - bytes.data()));
  return bytes;
}

TEST(Rice, ReadsWhatIsWrittenWithEveryParameterAndWidth) {
  std::mt19937_64 random(1);
  for (const unsigned width : {8U, 16U, 18U, 32U}) {
    for (unsigned parameter = 0; parameter < width; ++parameter) {
      std::vector<std::uint32_t> numbers;
      const std::uint64_t most = (std::uint64_t{1} << width) - 1;
      for (std::uint64_t zeros = 0; zeros < 18; ++zeros) {
        for (const std::uint64_t low : {std::uint64_t{0}, (std::uint64_t{1} << parameter) - 1}) {
          numbers.push_back(static_cast<std::uint32_t>(std::min((zeros << parameter) + low, most)));
        }
      }
      for (int i = 0; i < 100; ++i) numbers.push_back(static_cast<std::uint32_t>(random() & most));
      const auto bytes = written(numbers, parameter, width);
      std::uint64_t bits = 0;
      for (const std::uint32_t number : numbers) bits += rice_bits(number, parameter, width);
      ASSERT_EQ(bytes.size(), (bits + 7) / 8);
      RiceReader reader(bytes);
      for (const std::uint32_t number : numbers) {
        ASSERT_EQ(reader.read(parameter, width), number) << "parameter " << parameter << ", width " << width;
      }
      EXPECT_TRUE(reader.at_end());
      EXPECT_FALSE(reader.overran());
    }
  }
}

TEST(Rice, WritesTheBitsOfTheSpecification) {
  // 5 with the parameter 1: two zeros, a one, the bit 1; 0 with the parameter 1: a one, the bit 0.
  EXPECT_EQ(written({5, 0}, 1, 18), (std::vector<std::byte>{std::byte{0b011100}}));
  // 16 with the parameter 0: sixteen zeros, and 16 in 18 bits.
  EXPECT_EQ(written({16}, 0, 18),
            (std::vector<std::byte>{std::byte{0}, std::byte{0}, std::byte{16}, std::byte{0}, std::byte{0}}));
}

TEST(Rice, ReportsReadingBeyondTheEndAndUnreadBits) {
  const auto bytes = written({3, 3, 3}, 0, 18);  // twelve bits
  RiceReader reader(bytes);
  EXPECT_FALSE(reader.at_end());
  for (int i = 0; i < 3; ++i) ASSERT_EQ(reader.read(0, 18), 3U);
  EXPECT_TRUE(reader.at_end());
  static_cast<void>(reader.read(0, 18));
  EXPECT_TRUE(reader.overran());
  auto damaged = bytes;
  damaged.back() |= std::byte{0x80};
  RiceReader left(damaged);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(left.read(0, 18), 3U);
  EXPECT_FALSE(left.at_end()) << "a bit behind the last number is set";
  auto longer = bytes;
  longer.push_back(std::byte{0});
  RiceReader behind(longer);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(behind.read(0, 18), 3U);
  EXPECT_FALSE(behind.at_end()) << "a byte behind the last bit";
  RiceReader empty({});
  EXPECT_TRUE(empty.at_end());
  EXPECT_FALSE(empty.read_bit());
  EXPECT_TRUE(empty.overran());
}

TEST(Rice, ChoosesAParameterWhoseNeighboursAreNoBetter) {
  std::mt19937_64 random(2);
  for (const std::uint64_t range : {1U, 2U, 5U, 40U, 1000U, 100000U}) {
    std::vector<std::uint32_t> numbers;
    for (int i = 0; i < 500; ++i) {
      numbers.push_back(static_cast<std::uint32_t>((random() % range) * (random() % range) / range));
    }
    const RiceChoice choice = choose_rice(numbers, 18);
    for (unsigned parameter = 0; parameter < 18; ++parameter) {
      std::uint64_t bits = 0;
      for (const std::uint32_t number : numbers) bits += rice_bits(number, parameter, 18);
      EXPECT_LE(choice.bits, bits) << "range " << range << ", parameter " << parameter;
    }
  }
  EXPECT_EQ(choose_rice({}, 18).bits, 0U);
}

}  // namespace
}  // namespace bitsnap::entropy
