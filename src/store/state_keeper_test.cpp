// StateKeeper: what it gathers, and when it gathers nothing.
#include "store/state_keeper.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "codec/trained_like_testing.hpp"
#include "os/spare_pages_testing.hpp"

namespace bitsnap::store {
namespace {

constexpr std::size_t kElements = 1'500'000;  // of each of two streams: their edges lie within huge pages
constexpr std::size_t kPieceBytes = 1 << 20;

os::MemoryProbe with_available(std::uint64_t bytes) {
  return [bytes] { return os::AvailableMemory{.available_bytes = bytes, .limit_bytes = 80'000'000, .limit = {}}; };
}

class StateKeeperTest : public ::testing::Test {
 protected:
  StateKeeperTest() : streams_(2), bytes_(2, std::vector<std::byte>(4 * kElements)) {
    for (std::size_t i = 0; i < 2; ++i) {
      streams_[i].dtype = DType::f32;
      streams_[i].elements = kElements;
      codec::fill_trained_like(DType::f32, bytes_[i], i);
    }
  }

  // Passes all bytes on two threads; returns what is kept.
  KeptState keep(StateKeeper& keeper) const {
    EXPECT_TRUE(keeper.begin(streams_));
    const auto take = [&](std::size_t stream) {
      for (std::size_t at = 0; at < bytes_[stream].size(); at += kPieceBytes) {
        const std::size_t size = std::min(kPieceBytes, bytes_[stream].size() - at);
        keeper.take(stream, at, ConstByteSpan(bytes_[stream]).subspan(at, size));
      }
    };
    std::thread other(take, 1);
    take(0);
    other.join();
    return keeper.release();
  }
  KeptState keep_with(std::uint64_t limit_bytes, std::uint64_t available_bytes) const {
    StateKeeper keeper(limit_bytes, nullptr, with_available(available_bytes));
    return keep(keeper);
  }
  [[nodiscard]] bool are_kept(const KeptState& kept) const {
    return kept.streams.size() == 2 && std::equal(bytes_[0].begin(), bytes_[0].end(), kept.streams[0]) &&
           std::equal(bytes_[1].begin(), bytes_[1].end(), kept.streams[1]);
  }

  std::vector<StreamInfo> streams_;
  std::vector<std::vector<std::byte>> bytes_;
};

TEST_F(StateKeeperTest, GathersAllStreamsAndOffersTheirMemory) {
  StateKeeper keeper(UINT64_MAX, nullptr, with_available(UINT64_MAX));
  ASSERT_TRUE(keeper.begin(streams_));  // of a save that began again
  keeper.take(0, 0, ConstByteSpan(bytes_[1]).first(kPieceBytes));
  const KeptState kept = keep(keeper);
  ASSERT_TRUE(are_kept(kept));
  os::take_offered_pages();
  // Only the ends of the memory do not fill pages.
  EXPECT_LT(std::count_if(kept.streams[0], kept.streams[0] + 4 * kElements,
                          [](std::byte byte) { return byte != std::byte{}; }),
            8192);
}

TEST_F(StateKeeperTest, ReusesTheMemoryOfAnEqualState) {
  const KeptState first = keep_with(UINT64_MAX, UINT64_MAX);
  StateKeeper again(UINT64_MAX, first.memory, with_available(UINT64_MAX));
  const KeptState second = keep(again);
  EXPECT_EQ(second.memory, first.memory);
  EXPECT_TRUE(are_kept(second));
  StateKeeper smaller(UINT64_MAX, first.memory, with_available(UINT64_MAX));
  ASSERT_TRUE(smaller.begin(std::span(streams_).first(1)));
  EXPECT_NE(smaller.release().memory, first.memory);
}

TEST_F(StateKeeperTest, KeepsNothingBeyondItsLimitOrTheMemoryOfTheSystem) {
  EXPECT_FALSE(keep_with(8 * kElements, UINT64_MAX).is_empty());
  EXPECT_TRUE(keep_with(8 * kElements - 1, UINT64_MAX).is_empty());
  // Twice the state, and an eighth of the limit.
  EXPECT_FALSE(keep_with(UINT64_MAX, 16 * kElements + 10'000'000).is_empty());
  EXPECT_TRUE(keep_with(UINT64_MAX, 16 * kElements + 9'999'998).is_empty());
}

}  // namespace
}  // namespace bitsnap::store
