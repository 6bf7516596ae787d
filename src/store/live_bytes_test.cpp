// LiveChunks: counts the chunks of a file that others refer to, and the chunks that these need in turn.
#include "store/live_bytes.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "os/file_system_fake.hpp"
#include "restore/open_snapshot.hpp"
#include "restore/state_builder_testing.hpp"

namespace bitsnap::store {
namespace {

using codec::CodecId;
using restore::Bytes;
using restore::Coding;
using restore::StateBuilder;

std::shared_ptr<const Snapshot> open_built(StateBuilder& builder) {
  static os::FakeFileSystem no_files;
  auto opened = restore::open_snapshot(std::make_unique<container::MemoryFile>("x", builder.build()), {}, no_files);
  EXPECT_TRUE(opened.has_value()) << opened.error().message();
  return opened ? *opened : nullptr;
}

std::uint64_t stored_bytes(const Snapshot& snapshot, std::size_t stream) {
  std::uint64_t bytes = 0;
  for (std::uint64_t chunk = 0; chunk < snapshot.streams()[stream].chunk_count(); ++chunk) {
    bytes += snapshot.chunk_info(stream, chunk)->stored_bytes;
  }
  return bytes;
}

// A step with a master of two chunks, a weight and a slice that are coded against it, and another tensor.
class LiveBytes : public ::testing::Test {
 protected:
  static constexpr std::size_t kElements = kChunkElements + 1000;
  static constexpr std::size_t kSlice = 2000;
  static constexpr std::uint64_t kStep = 10;

  LiveBytes() {
    Bytes master = restore::random_bytes(4 * kElements, 1);
    for (std::size_t i = 0; i < master.size(); i += 4) {
      master[i] = master[i + 1] = std::byte{0};
      master[i + 3] = std::byte{0x3C};
    }
    for (std::size_t i = 2; i < master.size(); i += 4) weight_.insert(weight_.end(), {master[i], master[i + 1]});
    const std::uint64_t first = kChunkElements - 1000;  // half of it in each chunk
    const auto begin = weight_.begin() + static_cast<std::ptrdiff_t>(2 * first);
    slice_.assign(begin, begin + 2 * kSlice);
    held_.add("weight", DType::bf16, weight_, {CodecId::rounded_from, {{{}, 1, 0}}, {}, 1});
    held_.add("master", DType::f32, master);
    held_.add("other", DType::u8, other_);
    held_.add("slice", DType::bf16, slice_, {CodecId::rounded_from, {{{}, 1, first}}, {}, 1});
    held_file_ = open_built(held_);
  }

  // The bytes that a later step needs if it holds `bytes` unchanged, as in stream `stream` of the held step.
  std::uint64_t live_bytes(DType dtype, const Bytes& bytes, std::uint64_t stream) {
    StateBuilder later;
    const std::uint32_t base = later.add_base(held_, "x");
    later.add("again", dtype, bytes, {CodecId::same, {{base, stream, 0}}, {}});
    const auto snapshot = open_built(later);
    ShardFile file;
    file.references = {{held_file_->id(), kStep, 0, true}};
    LiveChunks live;
    live.note(*snapshot, file, {kStep});
    EXPECT_EQ(live.bytes(kStep + 1, 0, *held_file_), 0U);
    EXPECT_EQ(live.bytes(kStep, 1, *held_file_), 0U);
    return live.bytes(kStep, 0, *held_file_);
  }

  const Bytes other_ = restore::random_bytes(5000, 2);
  Bytes weight_;
  Bytes slice_;
  StateBuilder held_;
  std::shared_ptr<const Snapshot> held_file_;
};

TEST_F(LiveBytes, CountReferencedChunks) { EXPECT_EQ(live_bytes(DType::u8, other_, 2), stored_bytes(*held_file_, 2)); }

TEST_F(LiveBytes, CountDependenciesOfReferencedChunks) {
  EXPECT_EQ(live_bytes(DType::bf16, weight_, 0), stored_bytes(*held_file_, 0) + stored_bytes(*held_file_, 1));
  EXPECT_EQ(live_bytes(DType::bf16, slice_, 3), stored_bytes(*held_file_, 3) + stored_bytes(*held_file_, 1));
  const Bytes first_chunk(weight_.begin(), weight_.begin() + 2 * kChunkElements);
  EXPECT_EQ(live_bytes(DType::bf16, first_chunk, 0),
            held_file_->chunk_info(0, 0)->stored_bytes + held_file_->chunk_info(1, 0)->stored_bytes);
}

}  // namespace
}  // namespace bitsnap::store
