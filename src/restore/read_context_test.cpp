// How often a chunk is decoded that several others depend on, and the limits for hostile files.
#include "restore/read_context.hpp"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <vector>

#include "base/try.hpp"

namespace bitsnap {
namespace {

using Expected = ReadContext::Expected;

// Limits for the longest chain, including the links within its snapshots.
DecodeLimits deep() {
  DecodeLimits limits;
  limits.chain_depth = 80;
  return limits;
}

// One chunk of each tensor of an optimizer in a chain of snapshots, coded against the earlier snapshot and against the
// other tensors that its step depends on.
constexpr std::size_t kMean = 0, kSquare = 1, kMaster = 2, kWeight = 3, kStreams = 4;

struct Place {
  std::uint64_t snapshot = 0;
  std::size_t stream = 0;
  friend auto operator<=>(const Place&, const Place&) = default;
};

std::vector<Place> inputs_of(const Place& place) {
  const auto [now, stream] = place;
  if (now == 1) return stream == kWeight ? std::vector<Place>{{1, kMaster}} : std::vector<Place>{};
  switch (stream) {
    case kMean: return {{now - 1, kMean}};
    case kSquare: return {{now - 1, kSquare}, {now - 1, kMean}, {now, kMean}};
    case kMaster: return {{now - 1, kMaster}, {now, kMean}, {now, kSquare}};
    default: return {{now, kMaster}};
  }
}

// Decodes in the order of snapshots: all inputs, then the chunk, whose bytes depend on theirs.
class Chain {
 public:
  explicit Chain(std::size_t chunk_bytes = std::size_t{1} << 20) : chunk_bytes_(chunk_bytes) {}

  Result<void> read(const Place& place, ByteSpan out, ReadContext& context) {
    const std::vector<Place> inputs = inputs_of(place);
    const ReadContext::Chunk chunk{
        .key = {place.snapshot, place.stream, 0}, .is_fork = inputs.size() > 1, .is_peer = place.stream != kWeight};
    return context.decode_once(chunk, out, [&]() -> Result<void> {
      std::uint64_t value = place.snapshot * kStreams + place.stream;
      std::vector<ByteSpan> bytes;
      for (const Place& input : inputs) {
        BITSNAP_ASSIGN(bytes.emplace_back(), context.scratch().take(chunk_bytes_));
        BITSNAP_TRY(read(input, bytes.back(), context));
      }
      for (const ByteSpan input : bytes) value = value * 31 + load_le<std::uint64_t>(input.data());
      store_le<std::uint64_t>(out.data(), value);
      ++decodes_[place];
      return {};
    });
  }

  // Reads one chunk for a user.
  std::uint64_t must_read(const Place& place, ReadContext& context, Expected expected = Expected::nothing) {
    context.scratch().reset();
    context.restart();
    context.expect_again(expected);
    std::vector<std::byte> out(chunk_bytes_);
    const auto read_it = read(place, out, context);
    EXPECT_TRUE(read_it.has_value()) << read_it.error().message();
    return load_le<std::uint64_t>(out.data());
  }

  // The most decodings of one chunk, and of all chunks together.
  std::uint64_t most() const {
    std::uint64_t most = 0;
    for (const auto& [place, times] : decodes_) most = std::max(most, times);
    return most;
  }
  std::uint64_t total() const {
    std::uint64_t total = 0;
    for (const auto& [place, times] : decodes_) total += times;
    return total;
  }
  void forget() { decodes_.clear(); }

 private:
  std::size_t chunk_bytes_;
  std::map<Place, std::uint64_t> decodes_;
};

TEST(Remembering, DecodesEachInputOnceAtAnyDepth) {
  for (const std::uint64_t snapshots : {2U, 9U, 65U}) {
    for (const std::size_t stream : {kMean, kSquare, kMaster, kWeight}) {
      Chain chain;
      ReadContext context(deep());
      chain.must_read({snapshots, stream}, context);
      EXPECT_EQ(chain.most(), 1U) << snapshots << " " << stream;
      EXPECT_LE(chain.total(), 3 * snapshots + 1);
      EXPECT_LE(context.decoded().held_bytes(), ReadContext::kRememberedBytes);
    }
  }
}

TEST(Remembering, ReturnsTheDecodedBytes) {
  constexpr std::uint64_t kSnapshots = 5;
  Chain chain(8);
  ReadContext forgetful(DecodeLimits(), 0);
  ReadContext context(DecodeLimits(), 64);
  for (std::uint64_t snapshot = 1; snapshot <= kSnapshots; ++snapshot) {
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      const Place place{snapshot, stream};
      EXPECT_EQ(chain.must_read(place, context, Expected::all), chain.must_read(place, forgetful));
    }
  }
  EXPECT_GT(context.decoded().hits(), 0U);
  EXPECT_EQ(forgetful.decoded().hits(), 0U);
}

TEST(Remembering, NeedsOnlyEightChunks) {
  for (const std::uint64_t snapshots : {9U, 65U}) {
    Chain chain(8);
    ReadContext context(deep(), 8 * std::uint64_t{8});
    chain.must_read({snapshots, kWeight}, context);
    EXPECT_EQ(chain.most(), 1U) << snapshots;
  }
}

TEST(Remembering, SavesWorkThatGrowsWithTheCubeOfTheDepth) {
  Chain chain(8);
  ReadContext context(DecodeLimits(), 0);
  chain.must_read({9, kMaster}, context);
  EXPECT_GT(chain.total(), 200U);
}

TEST(Remembering, SharesInputsBetweenTensorsOfASnapshot) {
  Chain chain;
  ReadContext context(deep());
  for (std::size_t stream = 0; stream < kStreams; ++stream) chain.must_read({4, stream}, context, Expected::all);
  EXPECT_EQ(chain.most(), 1U);
  // A long chain exceeds the cache. Each chunk is still decoded at most once for each tensor that needs it.
  chain.forget();
  context.forget();
  for (std::size_t stream = 0; stream < kStreams; ++stream) chain.must_read({65, stream}, context, Expected::all);
  EXPECT_LE(chain.most(), 3U);
}

TEST(Remembering, DecodesOnceForSnapshotsReadInSequence) {
  Chain chain;
  ReadContext context(deep());
  for (std::uint64_t snapshot = 1; snapshot <= 65; ++snapshot) {
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      chain.must_read({snapshot, stream}, context, Expected::all);
    }
  }
  EXPECT_EQ(chain.most(), 1U);
}

TEST(Remembering, CachesNothingOfAPlainRead) {
  Chain chain(8);
  ReadContext context;
  chain.must_read({9, kMean}, context);  // a chain without forks
  EXPECT_EQ(context.decoded().held_bytes(), 0U);
  chain.must_read({1, kWeight}, context);
  EXPECT_EQ(context.decoded().held_bytes(), 0U);
  chain.must_read({1, kMaster}, context, Expected::peers);
  EXPECT_EQ(context.decoded().held_bytes(), 8U);
  chain.must_read({1, kWeight}, context, Expected::peers);
  EXPECT_EQ(context.decoded().hits(), 1U);
}

// A chain of `steps` chunks with one input each.
Result<void> read_steps(std::uint64_t steps, ByteSpan out, ReadContext& context) {
  return context.decode_once({.key = {1, 0, steps}, .is_part = true}, out, [&]() -> Result<void> {
    if (steps > 0) return read_steps(steps - 1, out, context);
    out[0] = std::byte{1};
    return {};
  });
}

TEST(Remembering, DoesNotExtendTheDepthLimit) {
  std::vector<std::byte> out(1);
  ReadContext context;
  for (std::uint64_t steps = 0; steps <= 100; ++steps) {
    context.restart();
    context.expect_again(Expected::all);
    const auto read = read_steps(steps, out, context);
    ASSERT_EQ(read.has_value(), steps <= DecodeLimits().chain_depth) << steps;
    if (!read) {
      EXPECT_EQ(read.error().kind(), ErrorKind::corrupt);
    }
  }
}

TEST(Remembering, CountsDecodedChunksAgainstTheBudget) {
  DecodeLimits limits;
  limits.chunk_decodes = 12;
  ReadContext context(limits);
  Chain chain(8);
  chain.must_read({4, kMaster}, context);
  EXPECT_EQ(context.decodes(), 12U);
  std::vector<std::byte> out(8);
  context.restart();
  context.forget();
  const auto read = chain.read({5, kMaster}, out, context);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().kind(), ErrorKind::resource_exhausted);
}

TEST(Remembering, CachesNoFailures) {
  ReadContext context;
  std::vector<std::byte> out(8);
  const ReadContext::Chunk chunk{.key = {1, 0, 0}};
  for (int i = 0; i < 2; ++i) {
    context.restart();
    context.expect_again(Expected::all);
    int calls = 0;
    const auto read = context.decode_once(chunk, out, [&]() -> Result<void> {
      ++calls;
      return fail(ErrorKind::corrupt, "damaged");
    });
    EXPECT_FALSE(read.has_value());
    EXPECT_EQ(calls, 1);
  }
  EXPECT_EQ(context.decoded().held_bytes(), 0U);
}

TEST(Remembering, FreesTheWorkingMemoryOfEachChunk) {
  Chain chain(1000);
  ReadContext context(deep());
  chain.must_read({65, kMaster}, context);
  const std::size_t once = context.scratch().capacity_bytes();
  for (int i = 0; i < 10; ++i) {
    context.restart();
    context.forget();
    std::vector<std::byte> out(1000);
    ASSERT_TRUE(chain.read({65, kMaster}, out, context).has_value());
  }
  EXPECT_EQ(context.scratch().capacity_bytes(), once);
}

}  // namespace
}  // namespace bitsnap
