// dump_snapshot() and Snapshot::open_bytes(): snapshots without files.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/writer.hpp>

#include "os/temporary_directory_testing.hpp"

namespace bitsnap {
namespace {

State state_of(const std::vector<float>& weight) {
  State state;
  state.tensors.push_back(TensorSource::of("weight", DType::f32, {weight.size()}, weight).value());
  state.metadata = {{"step", "1"}};
  return state;
}

// Random, so that only a base explains them; a few differ for each `seed`.
std::vector<float> weights(std::uint32_t seed) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> all(300'000);
  for (float& own : all) own = normal(random);
  for (std::size_t i = seed; i < all.size(); i += 1'000) all[i] += 1;
  return all;
}

std::shared_ptr<const Snapshot> opened(std::vector<std::byte> bytes, const OpenOptions& options = {}) {
  const auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  auto snapshot = Snapshot::open_bytes(*owner, owner, options);
  EXPECT_TRUE(snapshot) << snapshot.error().message();
  return snapshot ? *snapshot : nullptr;
}

std::vector<float> read(const Snapshot& snapshot) {
  std::vector<float> out(300'000);
  const auto done = snapshot.read_bytes(0, 0, std::as_writable_bytes(std::span(out)));
  EXPECT_TRUE(done) << done.error().message();
  return out;
}

TEST(DumpSnapshotTest, GivesTheBytesOfTheFile) {
  const std::vector<float> weight = weights(1);
  const os::TemporaryDirectory folder;
  ASSERT_TRUE(save_snapshot(folder / "a.bsnap", state_of(weight)));
  std::ifstream file(folder / "a.bsnap", std::ios::binary);
  const std::string expected{std::istreambuf_iterator<char>(file), {}};
  const auto dumped = dump_snapshot(state_of(weight));
  ASSERT_TRUE(dumped);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(dumped->bytes.data()), dumped->bytes.size()), expected);
  EXPECT_EQ(dumped->summary.stored_bytes, expected.size());
  EXPECT_EQ(read(*opened(dumped->bytes)), weight);
}

TEST(DumpSnapshotTest, IsCodedAgainstABaseThatOpeningNeedsAgain) {
  std::vector<std::shared_ptr<const Snapshot>> chain = {opened(dump_snapshot(state_of(weights(1)))->bytes)};
  std::vector<std::byte> last;
  for (const std::uint32_t first : {2U, 2U, 3U}) {
    SaveOptions options;
    options.base = chain.back();
    last = dump_snapshot(state_of(weights(first)), options)->bytes;
    chain.push_back(opened(last, {.bases = bases_of(chain.back())}));
    EXPECT_EQ(read(*chain.back()), weights(first));
  }
  const std::shared_ptr<const Snapshot> alone = opened(last);
  ASSERT_NE(alone, nullptr);
  std::vector<float> out(300'000);
  const auto refused = alone->read_bytes(0, 0, std::as_writable_bytes(std::span(out)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind(), ErrorKind::not_found);
  EXPECT_NE(refused.error().message().find("no base was given"), std::string::npos) << refused.error().message();
}

TEST(DumpSnapshotTest, DamagedBytesAreRefused) {
  std::vector<std::byte> bytes = dump_snapshot(state_of(weights(1)))->bytes;
  const auto open_first = [&](std::size_t size) {
    return Snapshot::open_bytes(std::span(bytes).first(size), nullptr, {}, "update").error();
  };
  EXPECT_EQ(open_first(bytes.size() - 1).kind(), ErrorKind::truncated);
  EXPECT_EQ(open_first(10).kind(), ErrorKind::truncated);
  bytes[bytes.size() - 20] ^= std::byte{1};
  EXPECT_EQ(open_first(bytes.size()).kind(), ErrorKind::corrupt);
  EXPECT_NE(open_first(bytes.size()).message().find("update"), std::string::npos);
}

}  // namespace
}  // namespace bitsnap
