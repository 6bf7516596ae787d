// Reading tensors back: whole, in ranges, as a stream, from the pool, through aliases and through inputs.
#include <bitsnap/snapshot.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/file_system_fake.hpp"
#include "os/memory.hpp"
#include "restore/open_snapshot.hpp"
#include "restore/read_context.hpp"
#include "restore/state_builder_testing.hpp"

namespace bitsnap::restore {
namespace {

using codec::CodecId;
using container::MemoryFile;
using container::ReadLog;
using ::testing::HasSubstr;

std::shared_ptr<const Snapshot> open_bytes(Bytes bytes, const OpenOptions& options = {},
                                           std::shared_ptr<ReadLog> log = nullptr,
                                           const std::string& path = "x.bsnap") {
  auto opened =
      open_snapshot(std::make_unique<MemoryFile>(path, std::move(bytes), std::move(log)), options, no_files());
  EXPECT_TRUE(opened.has_value()) << opened.error().message();
  return opened ? *opened : nullptr;
}

Bytes read_tensor(const Snapshot& snapshot, std::size_t tensor, std::uint64_t offset, std::size_t size) {
  Bytes out(size, std::byte{0xEE});
  const auto read = snapshot.read_bytes(tensor, offset, out);
  EXPECT_TRUE(read.has_value()) << read.error().message();
  return out;
}

Bytes slice(const Bytes& bytes, std::size_t offset, std::size_t size) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
  return {begin, begin + static_cast<std::ptrdiff_t>(size)};
}

// Tensors with every kind of input: in the same file, at odd offsets, and in a base.
struct Pair {
  StateBuilder base;
  StateBuilder state;
  Bytes base_file;
  Bytes file;
};

std::unique_ptr<Pair> make_pair() {
  auto pair = std::make_unique<Pair>();
  constexpr std::size_t kPairElements = 600'000;
  const Bytes weight = random_bytes(kPairElements * 2, 1);
  Bytes moved = weight;
  for (std::size_t i = 0; i < moved.size(); i += 4096) moved[i] ^= std::byte{1};
  Bytes frozen = random_bytes(kPairElements * 4, 2);
  for (std::byte& byte : frozen) byte &= std::byte{0x0F};
  pair->base.add("weight", DType::bf16, weight);
  pair->base.add("frozen", DType::f32, frozen, {CodecId::byte_group, {}, {}});
  pair->base.add_pooled("step", DType::f32, random_bytes(4, 3));
  pair->base_file = pair->base.build();

  StateBuilder& state = pair->state;
  const std::uint32_t base = state.add_base(pair->base, "base.bsnap");
  state.add("frozen", DType::f32, pair->base.bytes_of(1), {CodecId::same, {{base, 1, 0}}, {}});
  state.add("weight", DType::bf16, moved, {CodecId::bitmask, {{base, 0, 0}}, {}});
  state.add("zeros", DType::f32, Bytes(kPairElements * 4), {CodecId::constant, {}, {}});
  // Elements 100,001 to 400,000 of "frozen": every chunk touches two of its input's.
  state.add("part", DType::f32, slice(pair->base.bytes_of(1), 100'001 * 4, 300'000 * 4),
            {CodecId::same, {{{}, 0, 100'001}}, {}});
  state.add("text", DType::u8, Bytes(70'000, std::byte{'t'}), {CodecId::zstd, {}, {}});
  state.add_alias("tied", 1);
  state.add("empty", DType::i64, {});
  state.add("odd", DType::opaque, random_bytes(5, 5));
  for (std::size_t i = 0; i < 20; ++i) state.add_pooled("step." + std::to_string(i), DType::u8, random_bytes(4 + i, i));
  state.add_alias("step.again", 12);
  state.set_tree(Value(ValueTensor{0, ValueTensor::Kind::tensor}));
  pair->file = state.build();
  return pair;
}

class Reading : public ::testing::Test {
 protected:
  Reading() : pair_(make_pair()), base_(open_bytes(pair_->base_file, {}, base_log_, "base.bsnap")) {
    auto bases = std::make_shared<MapBases>();
    bases->add(base_);
    OpenOptions options;
    options.bases = bases;
    snapshot_ = open_bytes(pair_->file, options, log_);
    log_->clear();
    base_log_->clear();
  }

  const StateBuilder& state() const { return pair_->state; }

  std::unique_ptr<Pair> pair_;
  std::shared_ptr<ReadLog> base_log_ = std::make_shared<ReadLog>();
  std::shared_ptr<ReadLog> log_ = std::make_shared<ReadLog>();
  std::shared_ptr<const Snapshot> base_;
  std::shared_ptr<const Snapshot> snapshot_;
};

TEST_F(Reading, ListsTheContents) {
  EXPECT_EQ(snapshot_->id(), state().id());
  EXPECT_EQ(snapshot_->name(), "x.bsnap");
  EXPECT_EQ(snapshot_->file_bytes(), pair_->file.size());
  EXPECT_EQ(snapshot_->writer(), "a test");
  EXPECT_EQ(snapshot_->policy(), "by hand");
  EXPECT_EQ(snapshot_->find("weight"), 1U);
  EXPECT_EQ(snapshot_->find("weigh"), std::nullopt);
  EXPECT_EQ(snapshot_->find(""), std::nullopt);
  EXPECT_EQ(snapshot_->stream_of(3), 3U);
  EXPECT_EQ(snapshot_->stream_of(5), 1U);             // an alias
  EXPECT_EQ(snapshot_->stream_of(6), std::nullopt);   // empty
  EXPECT_EQ(snapshot_->stream_of(10), std::nullopt);  // pooled
  EXPECT_EQ(snapshot_->stream_of(1000), std::nullopt);
  ASSERT_EQ(snapshot_->bases().size(), 1U);
  EXPECT_EQ(snapshot_->bases()[0].id, base_->id());
  EXPECT_TRUE(snapshot_->has_tree());
  EXPECT_TRUE(snapshot_->tree().value().has_value());
  EXPECT_EQ(snapshot_->reason(99), "");

  const auto info = snapshot_->chunk_info(1, 2);
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->codec, "bitmask");
  EXPECT_EQ(info->raw_bytes, (600'000 - 2 * kChunkElements) * 2);
  EXPECT_EQ(info->depth, 1U);
  EXPECT_TRUE(info->uses_base);
  EXPECT_EQ(snapshot_->chunk_info(1, 3).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(snapshot_->chunk_info(99, 0).error().kind(), ErrorKind::invalid_argument);
}

TEST_F(Reading, ReturnsEveryTensorWhole) {
  for (std::size_t tensor = 0; tensor < snapshot_->tensors().size(); ++tensor) {
    const Bytes& expected = state().bytes_of(tensor);
    EXPECT_EQ(read_tensor(*snapshot_, tensor, 0, expected.size()), expected) << tensor;
  }
}

TEST_F(Reading, ReturnsEveryRange) {
  const std::vector<std::pair<std::size_t, std::size_t>> ranges = {
      {0, 1}, {1, 1}, {3, 2}, {1'048'575, 2}, {1'048'576, 4}, {524'287, 524'290}, {1'000'001, 150'003}, {1'199'999, 1}};
  for (std::size_t tensor = 0; tensor < snapshot_->tensors().size(); ++tensor) {
    const Bytes& expected = state().bytes_of(tensor);
    for (const auto& [offset, size] : ranges) {
      if (offset + size > expected.size()) continue;
      EXPECT_EQ(read_tensor(*snapshot_, tensor, offset, size), slice(expected, offset, size))
          << tensor << " " << offset;
    }
  }
}

TEST_F(Reading, ReturnsElementsOfAStream) {
  const Bytes& weight = state().bytes_of(1);
  Bytes out(2 * 400'000);  // of several chunks
  ASSERT_TRUE(snapshot_->read_elements(*snapshot_->stream_of(1), 5, out).has_value());
  EXPECT_EQ(out, slice(weight, 2 * 5, out.size()));
}

TEST_F(Reading, RejectsRangesAndBuffersThatDoNotFit) {
  Bytes out(10);
  EXPECT_EQ(snapshot_->read_bytes(99, 0, out).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(snapshot_->read_bytes(7, 0, out).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(snapshot_->read_bytes(1, 1'200'000 - 9, out).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(snapshot_->read_bytes(1, ~std::uint64_t{0}, out).error().kind(), ErrorKind::invalid_argument);
  EXPECT_TRUE(snapshot_->read_bytes(6, 0, {}).has_value());
  EXPECT_EQ(snapshot_->read(std::vector<Snapshot::ReadRequest>{{1, out}}).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(snapshot_->read(std::vector<Snapshot::ReadRequest>{{99, out}}).error().kind(), ErrorKind::invalid_argument);
  ReadContext context;
  EXPECT_EQ(snapshot_->read_elements(99, 0, out, context).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(snapshot_->read_elements(0, 599'998, out, context).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(snapshot_->read_elements(0, 0, std::span(out).first(5), context).error().kind(),
            ErrorKind::invalid_argument);
  EXPECT_EQ(snapshot_->read_elements(99, 0, out).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(snapshot_->read_elements(0, 599'998, out).error().kind(), ErrorKind::invalid_argument);
}

TEST_F(Reading, ReadsManyTensorsOnAnyNumberOfThreads) {
  for (const unsigned threads : {1U, 2U, 5U}) {
    std::vector<Bytes> out;
    std::vector<Snapshot::ReadRequest> requests;
    for (std::size_t tensor = 0; tensor < snapshot_->tensors().size(); ++tensor) {
      out.emplace_back(state().bytes_of(tensor).size(), std::byte{0xEE});
    }
    for (std::size_t tensor = out.size(); tensor-- > 0;) requests.push_back({tensor, out[tensor]});
    std::uint64_t last = 0;
    std::uint64_t total = 0;
    RunOptions options;
    options.threads = threads;
    options.progress = [&](std::uint64_t done, std::uint64_t all) {
      EXPECT_GE(done, last);
      last = done;
      total = all;
      return true;
    };
    const auto read = snapshot_->read(requests, options);
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_EQ(last, total);
    for (std::size_t tensor = 0; tensor < out.size(); ++tensor) EXPECT_EQ(out[tensor], state().bytes_of(tensor));
  }
}

TEST_F(Reading, StreamsEverythingInOrder) {
  Bytes expected;
  for (std::size_t tensor = 0; tensor < snapshot_->tensors().size(); ++tensor) {
    const Bytes& bytes = state().bytes_of(tensor);
    expected.insert(expected.end(), bytes.begin(), bytes.end());
  }
  for (const unsigned threads : {1U, 4U}) {
    Bytes got;
    RunOptions options;
    options.threads = threads;
    const auto streamed = snapshot_->stream_all(
        [&](std::span<const std::byte> piece) -> Result<void> {
          got.insert(got.end(), piece.begin(), piece.end());
          return {};
        },
        options);
    ASSERT_TRUE(streamed.has_value()) << streamed.error().message();
    EXPECT_TRUE(got == expected);
  }
}

TEST_F(Reading, StopsWhenCancelled) {
  RunOptions options;
  options.progress = [](std::uint64_t done, std::uint64_t) { return done == 0; };
  const auto sink = [](std::span<const std::byte>) -> Result<void> { return {}; };
  EXPECT_EQ(snapshot_->stream_all(sink, options).error().kind(), ErrorKind::cancelled);
  EXPECT_EQ(snapshot_->verify(true, options).error().kind(), ErrorKind::cancelled);
  EXPECT_EQ(compare(*snapshot_, *snapshot_, options).error().kind(), ErrorKind::cancelled);
  Bytes out(state().bytes_of(0).size());
  EXPECT_EQ(snapshot_->read(std::vector<Snapshot::ReadRequest>{{0, out}}, options).error().kind(),
            ErrorKind::cancelled);

  const auto full = [](std::span<const std::byte>) -> Result<void> {
    return tl::unexpected(Error(ErrorKind::io, "the disk is full"));
  };
  EXPECT_EQ(snapshot_->stream_all(full).error().message(), "the disk is full");
  const auto throwing = [](std::span<const std::byte>) -> Result<void> { throw std::bad_alloc(); };
  EXPECT_EQ(snapshot_->stream_all(throwing).error().kind(), ErrorKind::resource_exhausted);
}

TEST_F(Reading, TouchesOnlyTheChunksItNeeds) {
  // Three elements of "weight" in its chunk 1: one payload here, one in the base.
  (void)read_tensor(*snapshot_, 1, (kChunkElements + 7) * 2, 6);
  const auto info = snapshot_->chunk_info(1, 1);
  EXPECT_EQ(log_->reads(), (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{info->offset, info->stored_bytes}}));
  const auto base_info = base_->chunk_info(0, 1);
  EXPECT_EQ(base_log_->reads(),
            (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{base_info->offset, base_info->stored_bytes}}));

  log_->clear();
  base_log_->clear();
  (void)read_tensor(*snapshot_, 2, 0, 4);  // a constant: standalone
  EXPECT_EQ(log_->reads().size(), 1U);
  EXPECT_TRUE(base_log_->reads().empty());
}

TEST_F(Reading, DecodesAPoolChunkOnceForAllItsTensors) {
  for (std::size_t tensor = 8; tensor < 28; ++tensor) (void)read_tensor(*snapshot_, tensor, 0, 4);
  EXPECT_EQ(log_->reads().size(), 1U);

  auto pooled = open_bytes(pair_->file, {}, log_);
  log_->clear();
  std::vector<Bytes> out(20);
  std::vector<Snapshot::ReadRequest> requests;
  for (std::size_t i = 0; i < 20; ++i) {
    out[i].resize(4 + i);
    requests.push_back({8 + i, out[i]});
  }
  ASSERT_TRUE(pooled->read(requests).has_value());
  EXPECT_EQ(log_->reads().size(), 1U);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(out[i], state().bytes_of(8 + i));
}

TEST_F(Reading, FindsTheHolderOfBytes) {
  // The base holds "frozen".
  const auto frozen = snapshot_->holder(0, 1);
  ASSERT_TRUE(frozen.has_value());
  EXPECT_EQ(frozen->base, base_);
  EXPECT_EQ(frozen->stream, 1U);
  EXPECT_EQ(frozen->first_element, kChunkElements);
  EXPECT_EQ(frozen->depth, 0U);
  EXPECT_EQ(frozen->own_depth, 1U);
  EXPECT_EQ(frozen->decoded_hash, snapshot_->chunk_info(0, 1)->decoded_hash);
  // "weight" is coded against the base: it holds its own bytes.
  const auto weight = snapshot_->holder(1, 0);
  EXPECT_EQ(weight->base, nullptr);
  EXPECT_EQ(weight->stream, 1U);
  EXPECT_EQ(weight->depth, 1U);
  // "part" refers to halves of chunks, which cannot be shortened.
  const auto part = snapshot_->holder(3, 0);
  EXPECT_EQ(part->base, nullptr);
  EXPECT_EQ(part->stream, 3U);
  EXPECT_EQ(part->own_depth, part->depth);
  EXPECT_EQ(part->decoded_hash, snapshot_->chunk_info(3, 0)->decoded_hash);
  EXPECT_EQ(snapshot_->holder(99, 0).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(snapshot_->holder(0, 99).error().kind(), ErrorKind::invalid_argument);
}

TEST(Holders, AreFollowedThroughSeveralFiles) {
  std::shared_ptr<const Snapshot> last;
  std::vector<std::unique_ptr<StateBuilder>> builders;
  const Bytes data = random_bytes(2000, 1);
  for (std::size_t i = 0; i < 5; ++i) {
    auto builder = std::make_unique<StateBuilder>();
    builder->set_metadata("file", std::to_string(i));
    if (i == 0) {
      builder->add("x", DType::u8, data);
      builder->add("again", DType::u8, data, {CodecId::same, {{{}, 0, 0}}, {}});
    } else {
      const std::uint32_t base = builder->add_base(*builders.back(), "");
      builder->add("x", DType::u8, data, {CodecId::same, {{base, 1, 0}}, {}});
      builder->add("again", DType::u8, data, {CodecId::same, {{{}, 0, 0}}, {}});
    }
    auto bases = std::make_shared<MapBases>();
    if (last) bases->add(last);
    OpenOptions options;
    options.bases = bases;
    last = open_bytes(builder->build(), options, nullptr, std::to_string(i));
    builders.push_back(std::move(builder));
  }
  const auto holder = last->holder(1, 0);
  ASSERT_TRUE(holder.has_value()) << holder.error().message();
  EXPECT_EQ(holder->base->name(), "0");
  EXPECT_EQ(holder->stream, 0U);
  EXPECT_EQ(holder->depth, 0U);
  EXPECT_EQ(holder->own_depth, 4U);
}

TEST(Memory, StaysBoundedHoweverLargeATensorIs) {
  constexpr std::size_t kSize = std::size_t{4} << 30;
  StateBuilder small;
  small.add("huge", DType::f64, Bytes(kChunkElements * 8), {CodecId::constant, {}, {}});
  (void)small.build();
  // A constant tensor: each chunk has an entry and stores one element.
  container::RawFile file;
  file.content =
      R"({"tensors":[{"name":"huge","dtype":"F64","shape":[)" + std::to_string(kSize / 8) + R"(],"role":"other"}]})";
  file.encoding = R"({"streams":[{}]})";
  for (std::size_t i = 0; i < kSize / (kChunkElements * 8); ++i) {
    file.add_chunk(1, Bytes(8), {});
    file.chunks.back().decoded_hash = small.index().chunks[0].decoded_hash;
  }
  const auto snapshot = open_bytes(file.seal());
  const auto before = os::process_memory();
  ASSERT_TRUE(before.has_value());
  std::uint64_t bytes = 0;
  std::uint64_t pieces = 0;
  std::uint64_t most = 0;
  const auto streamed = snapshot->stream_all([&](std::span<const std::byte> piece) -> Result<void> {
    bytes += piece.size();
    if (++pieces % 64 == 0) most = std::max(most, os::process_memory()->anonymous_bytes);
    return {};
  });
  ASSERT_TRUE(streamed.has_value()) << streamed.error().message();
  EXPECT_EQ(bytes, kSize);
  EXPECT_LT(most, before->anonymous_bytes + (std::uint64_t{512} << 20));
}

TEST(Differences, AreCountedInElementsAndUlpDistances) {
  const auto f32 = [](std::vector<float> numbers) {
    Bytes bytes(numbers.size() * 4);
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return bytes;
  };
  const auto raw = [](std::initializer_list<int> numbers) {
    Bytes bytes;
    for (const int number : numbers) bytes.push_back(static_cast<std::byte>(number));
    return bytes;
  };
  StateBuilder a;
  StateBuilder b;
  a.add("equal", DType::f32, random_bytes(1'200'000, 1));
  b.add("equal", DType::f32, random_bytes(1'200'000, 1));
  a.add("float", DType::f32, f32({1.0F, -0.0F, 2.0F, 3.0F}));
  b.add("float", DType::f32, f32({1.0F, 0.0F, 2.0000002F, 3.0F}));
  Bytes late = random_bytes(1'200'000, 2);
  a.add("late", DType::bf16, late);
  late[1'199'998] ^= std::byte{3};
  b.add("late", DType::bf16, late);
  a.add("signed", DType::i8, raw({-1, 5}));
  b.add("signed", DType::i8, raw({1, 5}));
  a.add("unsigned", DType::u8, raw({255, 5}));
  b.add("unsigned", DType::u8, raw({1, 5}));
  a.add("bool", DType::boolean, raw({0, 1}));
  b.add("bool", DType::boolean, raw({1, 0}));
  a.add("opaque", DType::opaque, raw({0, 1}));
  b.add("opaque", DType::opaque, raw({0, 9}));
  a.add("only a", DType::u8, raw({1}));
  a.add("dtype", DType::u8, raw({1}));
  b.add("dtype", DType::i8, raw({1}));
  a.add("shape", DType::u8, raw({1}));
  b.add("shape", DType::u8, raw({1, 2}));
  a.add_pooled("pooled", DType::i16, raw({1, 2, 3, 4}));
  b.add_pooled("pooled", DType::i16, raw({1, 2, 4, 4}));
  a.add("complex", DType::c64, f32({1.0F, 2.0F}));
  b.add("complex", DType::c64, f32({1.0F, 2.0000005F}));
  a.add("empty", DType::u8, {});
  b.add("empty", DType::u8, {});
  b.add("only b", DType::u8, raw({1}));
  const auto differences = compare(*open_bytes(a.build()), *open_bytes(b.build()));
  ASSERT_TRUE(differences.has_value()) << differences.error().message();
  using Kind = TensorDifference::Kind;
  const std::vector<TensorDifference> expected = {
      {"equal", Kind::equal, 300'000, 0, 0},  {"float", Kind::changed, 4, 2, 1},
      {"late", Kind::changed, 600'000, 1, 0}, {"signed", Kind::changed, 2, 1, 2},
      {"unsigned", Kind::changed, 2, 1, 254}, {"bool", Kind::changed, 2, 2, 0},
      {"opaque", Kind::changed, 2, 1, 0},     {"only a", Kind::only_in_a, 1, 0, 0},
      {"dtype", Kind::incomparable, 1, 0, 0}, {"shape", Kind::incomparable, 1, 0, 0},
      {"pooled", Kind::changed, 2, 1, 1},     {"complex", Kind::changed, 1, 1, 2},
      {"empty", Kind::equal, 0, 0, 0},        {"only b", Kind::only_in_b, 1, 0, 0},
  };
  ASSERT_EQ(differences->size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const TensorDifference& found = (*differences)[i];
    EXPECT_EQ(found.name, expected[i].name);
    EXPECT_EQ(found.kind, expected[i].kind) << found.name;
    EXPECT_EQ(found.elements, expected[i].elements) << found.name;
    EXPECT_EQ(found.changed, expected[i].changed) << found.name;
    if (found.name != "late") {
      EXPECT_EQ(found.largest_ulp, expected[i].largest_ulp) << found.name;
    }
  }
  EXPECT_GE((*differences)[2].largest_ulp, 1U);
  EXPECT_LE((*differences)[2].largest_ulp, 3U);
}

}  // namespace
}  // namespace bitsnap::restore
