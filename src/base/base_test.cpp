// Tests of errors, the byte cursor, checked arithmetic, hashing, scratch memory and the CPU level.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/cpu.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/version.hpp>

#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "base/cpu_levels_testing.hpp"
#include "base/hash.hpp"
#include "base/scratch.hpp"
#include "base/try.hpp"

namespace bitsnap {
namespace {

TEST(Error, GainsContextAndKeepsItsKind) {
  const Error error = Error(ErrorKind::corrupt, "hash differs").within("chunk 3").within("model.bsnap");
  EXPECT_EQ(error.kind(), ErrorKind::corrupt);
  EXPECT_EQ(error.message(), "model.bsnap: chunk 3: hash differs");
}

TEST(Error, EveryKindHasAName) {
  for (int kind = 1; kind <= 10; ++kind) EXPECT_NE(error_kind_name(static_cast<ErrorKind>(kind)), "unknown");
}

Result<int> half(int value) {
  if (value % 2 != 0) return fail(ErrorKind::invalid_argument, "odd");
  return value / 2;
}

Result<int> quarter(int value) {
  BITSNAP_ASSIGN(const int once, half(value));
  BITSNAP_ASSIGN(const int twice, half(once));
  return twice;
}

TEST(TryMacros, PassTheFirstErrorOn) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(6).error().message(), "odd");
}

TEST(ByteCursor, ReadsInOrderAndStopsAtTheEnd) {
  const std::vector<std::byte> bytes{std::byte{1}, std::byte{0}, std::byte{2}, std::byte{0}, std::byte{7}};
  ByteCursor cursor(bytes);
  EXPECT_EQ(cursor.read<std::uint16_t>("first").value(), 1);
  EXPECT_EQ(cursor.read<std::uint16_t>("second").value(), 2);
  const auto third = cursor.read<std::uint16_t>("third");
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().kind(), ErrorKind::truncated);
  EXPECT_EQ(third.error().message(), "third at offset 4 needs 2 bytes, 1 remain");
  EXPECT_EQ(cursor.remaining(), 1U);
  EXPECT_EQ(cursor.take(UINT64_MAX, "huge").error().kind(), ErrorKind::truncated);
}

TEST(CheckedArithmetic, ReportsOverflow) {
  EXPECT_EQ(checked_add<std::uint64_t>(UINT64_MAX, 0), UINT64_MAX);
  EXPECT_EQ(checked_add<std::uint64_t>(UINT64_MAX, 1), std::nullopt);
  EXPECT_EQ(checked_multiply<std::uint32_t>(65536, 65535), 65536U * 65535U);
  EXPECT_EQ(checked_multiply<std::uint32_t>(65536, 65536), std::nullopt);
  EXPECT_EQ(divide_up<std::uint64_t>(UINT64_MAX, 2), UINT64_MAX / 2 + 1);
  EXPECT_EQ(divide_up<std::uint64_t>(0, 5), 0U);
}

std::vector<std::byte> ramp(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 131 + i / 251);
  return bytes;
}

TEST(Hash64, MatchesTheReferenceXxh3AtEveryCpuLevel) {
  // The test vectors of the xxHash project.
  at_every_level([&] {
    EXPECT_EQ(hash64({}), 0x2D06800538D394C2U);
    EXPECT_EQ(hash64(as_byte_span("a")), 0xE6C632B61E964E1FU);
  });
  for (const std::size_t size : {1U, 16U, 17U, 128U, 129U, 240U, 241U, 1024U, 4097U, 300'000U}) {
    const std::vector<std::byte> bytes = ramp(size);
    ASSERT_TRUE(force_cpu_level(CpuLevel::scalar));
    const std::uint64_t expected = hash64(bytes);
    at_every_level([&] { EXPECT_EQ(hash64(bytes), expected) << size; });
  }
}

TEST(Hasher128, DoesNotDependOnThePieces) {
  const std::vector<std::byte> bytes = ramp(10'000);
  Hasher128 whole;
  whole.update(bytes);
  Hasher128 pieces;
  for (std::size_t at = 0, step = 1; at < bytes.size(); at += step, step = step * 3 % 1009) {
    step = std::min(step, bytes.size() - at);
    pieces.update(ConstByteSpan(bytes).subspan(at, step));
  }
  EXPECT_EQ(whole.digest(), pieces.digest());
  Hasher128 other;
  other.update(ConstByteSpan(bytes).first(9'999));
  EXPECT_NE(whole.digest(), other.digest());
}

TEST(Scratch, GivesAlignedMemoryAndFramesReturnIt) {
  Scratch scratch;
  const ByteSpan first = scratch.take(100).value();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.data()) % 64, 0U);
  std::byte* inner = nullptr;
  {
    const Scratch::Frame frame(scratch);
    inner = scratch.take(1000).value().data();
    EXPECT_GE(inner, first.data() + first.size());
    (void)scratch.take(5U << 20U).value();  // a block of its own
  }
  EXPECT_EQ(scratch.take(1000).value().data(), inner);
  const std::size_t capacity = scratch.capacity_bytes();
  scratch.reset();
  EXPECT_EQ(scratch.take(100).value().data(), first.data());
  EXPECT_EQ(scratch.capacity_bytes(), capacity);
}

TEST(Scratch, GrowingDoesNotMoveMemoryInUse) {
  Scratch scratch;
  std::vector<std::span<std::uint32_t>> taken;
  for (std::uint32_t i = 0; i < 200; ++i) {
    const auto array = scratch.take_array<std::uint32_t>(10'000).value();
    std::ranges::fill(array, i);
    taken.push_back(array);
  }
  for (std::uint32_t i = 0; i < taken.size(); ++i) {
    for (const std::uint32_t value : taken[i]) ASSERT_EQ(value, i);
  }
}

TEST(Scratch, RefusesSizesThatCannotBeAllocated) {
  Scratch scratch;
  EXPECT_EQ(scratch.take(SIZE_MAX).error().kind(), ErrorKind::resource_exhausted);
  EXPECT_EQ(scratch.take(SIZE_MAX / 2).error().kind(), ErrorKind::resource_exhausted);
  EXPECT_EQ(scratch.take_array<std::uint64_t>(SIZE_MAX / 4).error().kind(), ErrorKind::resource_exhausted);
}

TEST(CpuLevel, CanBeForcedIfTheMachineSupportsIt) {
  const CpuLevel before = cpu_level();
  ASSERT_TRUE(force_cpu_level(CpuLevel::scalar));
  EXPECT_EQ(cpu_level(), CpuLevel::scalar);
  EXPECT_TRUE(has_cpu_level(CpuLevel::scalar));
  EXPECT_TRUE(has_cpu_level(detected_cpu_level()));
  EXPECT_FALSE(has_cpu_level(CpuLevel::avx2) && has_cpu_level(CpuLevel::neon));
  for (const CpuLevel level : kCpuLevels) {
    EXPECT_EQ(cpu_level_from_name(cpu_level_name(level)), level);
    const CpuLevel forced = cpu_level();
    EXPECT_EQ(force_cpu_level(level), has_cpu_level(level));
    EXPECT_EQ(cpu_level(), has_cpu_level(level) ? level : forced);
  }
  EXPECT_EQ(cpu_level_from_name("sse9"), std::nullopt);
  force_cpu_level(before);
}

}  // namespace
}  // namespace bitsnap
