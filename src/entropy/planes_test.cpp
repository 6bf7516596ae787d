// Compares the plane kernels at every CPU level with a naive reference: odd lengths, unaligned pointers, no writes
// outside.
#include "entropy/planes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <bitsnap/cpu.hpp>

#include "base/bytes.hpp"
#include "entropy/guard_testing.hpp"

namespace bitsnap::entropy {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kPlaneLengths[] = {0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 640, 1000, 4099};
constexpr std::size_t kRotatedSizes[] = {2, 4, 8};

Bytes random_bytes(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

class EveryLevel : public testing::TestWithParam<CpuLevel> {
 protected:
  void SetUp() override {
    if (!force_cpu_level(GetParam())) GTEST_SKIP() << "this machine lacks it";
  }
  void TearDown() override { force_cpu_level(detected_cpu_level()); }
};

// Byte k of element i after the XOR with the base and the rotation, bit by bit.
std::byte naive_plane_byte(const std::byte* in, const std::byte* base, bool rotated, std::size_t element_size,
                           std::size_t i, std::size_t k) {
  unsigned byte = 0;
  const std::size_t bits = 8 * element_size;
  for (std::size_t bit = 0; bit < 8; ++bit) {
    const std::size_t from = (8 * k + bit + (rotated ? bits - 1 : 0)) % bits;
    const std::size_t at = i * element_size + from / 8;
    const std::byte value = base != nullptr ? in[at] ^ base[at] : in[at];
    byte |= (std::to_integer<unsigned>(value) >> (from % 8) & 1U) << bit;
  }
  return static_cast<std::byte>(byte);
}

enum class Form { plain, with_base, rotated };

void check_split_and_merge(Form form, std::size_t elements, std::size_t element_size, std::size_t misaligned) {
  SCOPED_TRACE(std::to_string(elements) + " elements of " + std::to_string(element_size) + ", misaligned by " +
               std::to_string(misaligned));
  const std::size_t size = elements * element_size;
  const Bytes in_buffer = random_bytes(size + misaligned, 1);
  const Bytes base_buffer = random_bytes(size + misaligned, 2);
  const std::byte* const in = in_buffer.data() + misaligned;
  const std::byte* const base = base_buffer.data() + misaligned;

  std::vector<Bytes> buffers(element_size, Bytes(misaligned + elements + kGuardBytes, kGuard));
  std::vector<std::byte*> planes;
  for (Bytes& buffer : buffers) planes.push_back(buffer.data() + misaligned);
  switch (form) {
    case Form::plain: split_planes(in, elements, element_size, planes.data()); break;
    case Form::with_base: xor_split_planes(in, base, elements, element_size, planes.data()); break;
    case Form::rotated: rotated_split_planes(in, elements, element_size, planes.data()); break;
  }
  for (std::size_t k = 0; k < element_size; ++k) {
    for (std::size_t i = 0; i < elements; ++i) {
      const std::byte expected =
          naive_plane_byte(in, form == Form::with_base ? base : nullptr, form == Form::rotated, element_size, i, k);
      ASSERT_EQ(planes[k][i], expected) << "plane " << k << ", element " << i;
    }
    EXPECT_TRUE(std::all_of(planes[k] + elements, planes[k] + elements + kGuardBytes,
                            [](std::byte byte) { return byte == kGuard; }));
  }

  Bytes out(misaligned + size + kGuardBytes, kGuard);
  switch (form) {
    case Form::plain: merge_planes(planes.data(), elements, element_size, out.data() + misaligned); break;
    case Form::with_base: xor_merge_planes(planes.data(), base, elements, element_size, out.data() + misaligned); break;
    case Form::rotated: rotated_merge_planes(planes.data(), elements, element_size, out.data() + misaligned); break;
  }
  EXPECT_TRUE(std::equal(in, in + size, out.data() + misaligned));
  EXPECT_TRUE(std::all_of(out.data() + misaligned + size, out.data() + out.size(),
                          [](std::byte byte) { return byte == kGuard; }));
}

using PlaneKernels = EveryLevel;

TEST_P(PlaneKernels, SplitAndMergeLikeTheReference) {
  for (const std::size_t element_size : kElementSizes) {
    for (const std::size_t elements : kPlaneLengths)
      check_split_and_merge(Form::plain, elements, element_size, elements % 5);
  }
}

TEST_P(PlaneKernels, SplitAndMergeWithABaseLikeTheReference) {
  for (const std::size_t element_size : kElementSizes) {
    for (const std::size_t elements : kPlaneLengths) {
      check_split_and_merge(Form::with_base, elements, element_size, elements % 7);
    }
  }
}

TEST_P(PlaneKernels, SplitAndMergeRotatedLikeTheReference) {
  for (const std::size_t element_size : kRotatedSizes) {
    for (const std::size_t elements : kPlaneLengths) {
      check_split_and_merge(Form::rotated, elements, element_size, elements % 3);
    }
  }
}

TEST_P(PlaneKernels, MergeInPlaceOverTheBase) {
  for (const std::size_t element_size : kElementSizes) {
    const std::size_t elements = 333;
    const Bytes in = random_bytes(elements * element_size, 3);
    Bytes base = random_bytes(elements * element_size, 4);
    std::vector<Bytes> buffers(element_size, Bytes(elements));
    std::vector<std::byte*> planes;
    for (Bytes& buffer : buffers) planes.push_back(buffer.data());
    xor_split_planes(in.data(), base.data(), elements, element_size, planes.data());
    xor_merge_planes(planes.data(), base.data(), elements, element_size, base.data());
    EXPECT_EQ(base, in) << "elements of " << element_size;
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, PlaneKernels, testing::ValuesIn(kCpuLevels),
                         [](const auto& level) { return std::string(cpu_level_name(level.param)); });

TEST(Planes, PutTheExponentOfABfloat16IntoTheTopPlane) {
  // -1.5 in bf16: sign 1, exponent 127, mantissa 1000000.
  const std::byte in[] = {std::byte{0xc0}, std::byte{0xbf}};
  std::byte low;
  std::byte high;
  std::byte* const planes[] = {&low, &high};
  rotated_split_planes(in, 1, 2, planes);
  EXPECT_EQ(high, std::byte{127});
  EXPECT_EQ(low, std::byte{0x81});  // mantissa << 1 | sign
}

TEST(Planes, FindASignBitAtAnyPlace) {
  for (const std::size_t element_size : kElementSizes) {
    for (const std::size_t elements : {std::size_t{1}, std::size_t{3}, std::size_t{64}, std::size_t{515}}) {
      Bytes in(elements * element_size, std::byte{0x7f});
      for (std::size_t i = 0; i < in.size(); ++i) {
        if (i % element_size != element_size - 1) in[i] = std::byte{0xff};  // only the top byte has the sign
      }
      EXPECT_FALSE(any_sign_bit_set(in.data(), elements, element_size));
      for (std::size_t i = 0; i < elements; ++i) {
        std::byte& top = in[i * element_size + element_size - 1];
        top = std::byte{0x80};
        EXPECT_TRUE(any_sign_bit_set(in.data(), elements, element_size)) << i << " of " << elements;
        top = std::byte{0x7f};
      }
    }
  }
  EXPECT_FALSE(any_sign_bit_set(nullptr, 0, 4));
}

TEST(Planes, FindASingleDifferentElement) {
  for (const std::size_t element_size :
       {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{4}, std::size_t{8}}) {
    Bytes in;
    for (std::size_t i = 0; i < 100 * element_size; ++i) in.push_back(static_cast<std::byte>(i % element_size));
    EXPECT_TRUE(all_equal_element(in.data(), 100, element_size));
    for (std::size_t i = 0; i < in.size(); ++i) {
      in[i] ^= std::byte{1};
      EXPECT_FALSE(all_equal_element(in.data(), 100, element_size)) << "byte " << i;
      in[i] ^= std::byte{1};
    }
    EXPECT_TRUE(all_equal_element(in.data(), 1, element_size));
    EXPECT_TRUE(all_equal_element(nullptr, 0, element_size));
  }
}

}  // namespace
}  // namespace bitsnap::entropy
