// save_snapshot() with real files, read back: contents, sizes, chains, overwriting, and states that are rejected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <bitsnap/cpu.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

#include "os/file_system.hpp"
#include "os/temporary_directory_testing.hpp"
#include "save/state_testing.hpp"

namespace bitsnap {
namespace {

using save::bf16_weights;
using save::Bytes;
using save::random_bytes;
using save::read_tensor;
using save::source;

class SaveSnapshot : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return directory_ / name; }

  // The names of the files in the directory.
  [[nodiscard]] std::vector<std::string> files() const {
    return os::real_file_system().list_directory(directory_.path()).value();
  }

  [[nodiscard]] Bytes contents(const std::string& name) const {
    return os::read_file(os::real_file_system(), path(name), UINT64_MAX).value();
  }

  os::TemporaryDirectory directory_;
};

TEST_F(SaveSnapshot, RestoresEveryTensorBitForBit) {
  const Bytes weights = bf16_weights(600'001, 1);
  const Bytes noise = random_bytes(4 * 70'000, 2);
  const Bytes step = random_bytes(4, 3);
  const Bytes zeros(8 * 300'000);
  const Bytes none;
  State state;
  state.tensors.push_back(source("model.wte", DType::bf16, {600'001}, weights));
  state.tensors.push_back(source("noise", DType::f32, {70, 1000}, noise));
  state.tensors.push_back(source("step", DType::f32, {}, step));
  state.tensors.push_back(source("zeros", DType::i64, {300'000}, zeros));
  state.tensors.push_back(source("empty", DType::f16, {3, 0}, none));
  state.tensors.push_back(source("", DType::u8, {4}, step));
  state.tensors.push_back(source("tied", DType::bf16, {600'001}, weights));
  state.tensors.back().info.alias_of = 0;
  state.tensors.back().data = nullptr;
  state.tensors[1].info.shard = ShardBox{{140, 1000}, {70, 0}};
  state.metadata = {{"format", "pt"}};

  const auto saved = save_snapshot(path("a.bsnap"), state);
  ASSERT_TRUE(saved.has_value()) << saved.error().message();
  EXPECT_EQ(saved->stored_bytes, std::filesystem::file_size(path("a.bsnap")));
  EXPECT_EQ(saved->raw_bytes, weights.size() + noise.size() + step.size() * 2 + zeros.size());
  EXPECT_EQ(saved->chunks, 3U + 1U + 2U + 1U);

  const auto opened = Snapshot::open(path("a.bsnap"));
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  const Snapshot& snapshot = **opened;
  EXPECT_EQ(snapshot.id(), saved->id);
  EXPECT_EQ(read_tensor(snapshot, "model.wte"), weights);
  EXPECT_EQ(read_tensor(snapshot, "noise"), noise);
  EXPECT_EQ(read_tensor(snapshot, "step"), step);
  EXPECT_EQ(read_tensor(snapshot, "zeros"), zeros);
  EXPECT_EQ(read_tensor(snapshot, ""), step);
  EXPECT_EQ(read_tensor(snapshot, "tied"), weights);
  EXPECT_EQ(snapshot.tensors()[6].alias_of, 0U);
  EXPECT_EQ(snapshot.tensors()[1].shard, state.tensors[1].info.shard);
  EXPECT_EQ(snapshot.metadata(), state.metadata);
  const auto damage = snapshot.verify();
  ASSERT_TRUE(damage.has_value());
  EXPECT_TRUE(damage->empty());
}

TEST_F(SaveSnapshot, GivesTheSameBytesForAnyThreadsAndCpuLevel) {
  const Bytes weights = bf16_weights(2'000'000, 5);
  const Bytes base_weights = bf16_weights(2'000'000, 5);
  Bytes changed = weights;
  for (std::size_t i = 0; i < changed.size(); i += 37) changed[i] ^= std::byte{1};
  const Bytes master = random_bytes(4'000'000, 6);
  State before;
  before.tensors.push_back(source("w", DType::bf16, {2'000'000}, weights));
  before.tensors.push_back(source("m", DType::f32, {1'000'000}, master));
  State after = before;
  after.tensors[0].data = changed.data();

  const CpuLevel level_before = cpu_level();
  std::vector<Bytes> files;
  for (const CpuLevel level : kCpuLevels) {
    if (!force_cpu_level(level)) continue;
    for (const unsigned threads : {1U, 2U, 5U}) {
      for (const Policy policy : {Policy::lossless, Policy::lmc, Policy::bounded, Policy::bitsnap, Policy::raw}) {
        SaveOptions options{.settings = {.policy = policy}, .overwrite = true, .threads = threads};
        ASSERT_TRUE(save_snapshot(path("base.bsnap"), before, options).has_value());
        options.base = Snapshot::open(path("base.bsnap")).value();
        ASSERT_TRUE(save_snapshot(path("delta.bsnap"), after, options).has_value());
        Bytes both = contents("base.bsnap");
        const Bytes delta = contents("delta.bsnap");
        both.insert(both.end(), delta.begin(), delta.end());
        const auto first = static_cast<std::size_t>(policy);
        if (files.size() <= first) {
          files.push_back(both);
        } else {
          EXPECT_EQ(files[first], both) << policy_name(policy) << " " << cpu_level_name(level) << " " << threads;
        }
      }
    }
  }
  force_cpu_level(level_before);
}

// A matrix whose elements have a scale by row and by column, and random mantissas.
Bytes scaled_matrix(std::size_t rows, std::size_t columns) {
  Bytes bytes(4 * rows * columns);
  for (std::size_t i = 0; i < rows * columns; ++i) {
    const std::size_t column = i % columns;
    const auto exponent =
        static_cast<std::uint32_t>(90 + column * 40503 % 65536 / 4096 + i / columns * 40503 % 65536 / 8192);
    const std::uint32_t element = exponent << 23 | (static_cast<std::uint32_t>(i) * 0x9E3779B1U >> 9);
    std::memcpy(bytes.data() + 4 * i, &element, 4);
  }
  return bytes;
}

TEST_F(SaveSnapshot, UsesTheRowsAndColumnsOfAMatrix) {
  // Chunks begin in the middle of rows.
  const Bytes moments = scaled_matrix(1000, 777);
  const auto stored_as = [&](const std::vector<std::uint64_t>& shape) {
    State state;
    state.tensors.push_back(source("exp_avg_sq", DType::f32, shape, moments));
    const auto saved = save_snapshot(path("a.bsnap"), state, {.overwrite = true});
    EXPECT_TRUE(saved.has_value());
    EXPECT_EQ(read_tensor(*Snapshot::open(path("a.bsnap")).value(), "exp_avg_sq"), moments);
    return saved ? saved->stored_bytes : 0;
  };
  const std::uint64_t matrix = stored_as({1000, 777});
  // 23 random bits of mantissa per element; the rest follows from row and column.
  EXPECT_LE(matrix, moments.size() * 23 / 32 + moments.size() / 64);
  EXPECT_LE(matrix + moments.size() / 16, stored_as({777'000}));
  EXPECT_LE(matrix + moments.size() / 16, stored_as({777, 1000}));
  EXPECT_NEAR(static_cast<double>(stored_as({100, 10, 777})), static_cast<double>(matrix), 8)
      << "only the text of the shape differs";
}

TEST_F(SaveSnapshot, StoresAnUnchangedTensorOncePerChain) {
  const Bytes frozen = bf16_weights(4'000'000, 7);
  Bytes counter(8192);
  State state;
  state.tensors.push_back(source("frozen", DType::bf16, {4'000'000}, frozen));
  state.tensors.push_back(source("counter", DType::u8, {8192}, counter));
  std::shared_ptr<const Snapshot> base;
  for (int step = 0; step < 12; ++step) {
    counter[0] = static_cast<std::byte>(step);
    const std::string name = "step-" + std::to_string(step) + ".bsnap";
    const auto saved = save_snapshot(path(name), state, {.base = base});
    ASSERT_TRUE(saved.has_value()) << saved.error().message();
    EXPECT_LT(saved->stored_bytes, step > 0 ? frozen.size() / 1000 : frozen.size());
    base = Snapshot::open(path(name)).value();
    EXPECT_EQ(read_tensor(*base, "frozen"), frozen);
    EXPECT_EQ(read_tensor(*base, "counter"), counter);
    if (step > 0) {
      // The reference names the first snapshot, which holds the bytes.
      const auto chunk = base->chunk_info(0, 3).value();
      EXPECT_EQ(chunk.codec, "same");
      EXPECT_EQ(chunk.depth, 1U);
      EXPECT_EQ(base->holder(0, 3).value().depth, 0U);
      EXPECT_EQ(base->bases().front().name, "step-0.bsnap");
    }
  }
}

TEST_F(SaveSnapshot, RefersToABaseWithTheSameId) {
  const Bytes weights = bf16_weights(500'000, 8);
  State state;
  state.tensors.push_back(source("w", DType::bf16, {500'000}, weights));
  const auto first = save_snapshot(path("first.bsnap"), state);
  ASSERT_TRUE(first.has_value());
  const auto second = save_snapshot(path("second.bsnap"), state, {.base = Snapshot::open(path("first.bsnap")).value()});
  ASSERT_TRUE(second.has_value()) << second.error().message();
  EXPECT_EQ(first->id, second->id);
  EXPECT_LT(second->stored_bytes, 2000U);
  EXPECT_EQ(read_tensor(*Snapshot::open(path("second.bsnap")).value(), "w"), weights);
}

TEST_F(SaveSnapshot, FindsARenamedBaseAmongFilesWithTheSameId) {
  const Bytes weights = bf16_weights(500'000, 16);
  Bytes changed = weights;
  for (std::size_t i = 0; i < changed.size(); i += 20) changed[i] ^= std::byte{3};
  State there;
  there.tensors.push_back(source("w", DType::bf16, {500'000}, weights));
  State elsewhere = there;
  elsewhere.tensors[0].data = changed.data();
  ASSERT_TRUE(save_snapshot(path("z-there.bsnap"), there).has_value());
  const auto first = Snapshot::open(path("z-there.bsnap")).value();
  ASSERT_TRUE(save_snapshot(path("elsewhere.bsnap"), elsewhere, {.base = first}).has_value());
  const auto second = Snapshot::open(path("elsewhere.bsnap")).value();
  ASSERT_TRUE(save_snapshot(path("back.bsnap"), there, {.base = second}).has_value());
  std::filesystem::rename(path("z-there.bsnap"), path("z-renamed.bsnap"));
  EXPECT_EQ(read_tensor(*Snapshot::open(path("elsewhere.bsnap")).value(), "w"), changed);
  EXPECT_EQ(read_tensor(*Snapshot::open(path("back.bsnap")).value(), "w"), weights);
}

TEST_F(SaveSnapshot, ReadsAChainInWhichContentRepeats) {
  Bytes weights = bf16_weights(300'000, 18);
  State state;
  state.tensors.push_back(source("w", DType::bf16, {300'000}, weights));
  std::shared_ptr<const Snapshot> base;
  for (const std::string name : {"0.bsnap", "1.bsnap", "2.bsnap", "3.bsnap"}) {
    for (std::size_t i = 0; i < weights.size(); i += 100) weights[i] ^= std::byte{1};
    ASSERT_TRUE(save_snapshot(path(name), state, {.base = base}).has_value());
    base = Snapshot::open(path(name)).value();
    EXPECT_EQ(read_tensor(*base, "w"), weights);
  }
}

TEST_F(SaveSnapshot, DoesNotOverwriteFilesThatItsBaseNeeds) {
  State state;
  Bytes weights = bf16_weights(300'000, 17);
  state.tensors.push_back(source("w", DType::bf16, {300'000}, weights));
  std::shared_ptr<const Snapshot> base;
  // Every chunk changes, so that each snapshot refers to the one before only.
  for (const std::string name : {"0.bsnap", "1.bsnap", "2.bsnap", "3.bsnap"}) {
    for (std::size_t i = 0; i < weights.size(); i += 100) weights[i] ^= static_cast<std::byte>(name[0]);
    ASSERT_TRUE(save_snapshot(path(name), state, {.base = base}).has_value());
    base = Snapshot::open(path(name)).value();
  }
  for (const std::string name : {"0.bsnap", "1.bsnap", "2.bsnap", "3.bsnap"}) {
    const Bytes before = contents(name);
    const auto saved = save_snapshot(path(name), state, {.base = base, .overwrite = true});
    ASSERT_FALSE(saved.has_value()) << name;
    EXPECT_EQ(saved.error().kind(), ErrorKind::invalid_argument);
    EXPECT_EQ(contents(name), before);
  }
  EXPECT_TRUE(
      save_snapshot(path("2.bsnap"), state, {.base = Snapshot::open(path("1.bsnap")).value(), .overwrite = true})
          .has_value());
}

TEST_F(SaveSnapshot, DoesNotOverwriteAFileWithAnUnreadableState) {
  const Bytes bytes(64);
  State state;
  state.tensors.push_back(source("w", DType::f32, {16}, bytes));
  ASSERT_TRUE(save_snapshot(path("a.bsnap"), state).has_value());
  const Bytes before = contents("a.bsnap");
  const auto refused = [&] {
    const auto saved = save_snapshot(path("a.bsnap"), state, {.overwrite = true});
    return !saved.has_value() && saved.error().kind() == ErrorKind::invalid_argument && contents("a.bsnap") == before;
  };
  state.tree = Value(Value::Variant(ValueTensor{1, ValueTensor::Kind::tensor}));
  EXPECT_TRUE(refused());
  state.tree = Value(Value::Variant(ValueTensor{0, ValueTensor::Kind::scalar}));
  EXPECT_TRUE(refused());
  state.tree.reset();
  state.tensors[0].info.dtype = DType::opaque;
  state.tensors[0].info.dtype_name = "F4";
  state.tensors[0].info.shape = {std::uint64_t{1} << 62, 4};
  EXPECT_TRUE(refused());
}

TEST_F(SaveSnapshot, LimitsChainsToMaxDepth) {
  Bytes weights = bf16_weights(300'000, 9);
  State state;
  state.tensors.push_back(source("w", DType::bf16, {300'000}, weights));
  std::shared_ptr<const Snapshot> base;
  std::vector<std::uint32_t> depths;
  std::mt19937 random(1);
  for (int step = 0; step < 9; ++step) {
    for (int i = 0; i < 1000; ++i) weights[2 * (random() % 300'000)] ^= std::byte{1};
    const std::string name = std::to_string(step) + ".bsnap";
    ASSERT_TRUE(save_snapshot(path(name), state, {.settings = {.max_depth = 3}, .base = base}).has_value());
    base = Snapshot::open(path(name)).value();
    depths.push_back(base->chunk_info(0, 0).value().depth);
    EXPECT_EQ(read_tensor(*base, "w"), weights);
  }
  EXPECT_EQ(depths, (std::vector<std::uint32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0}));
  EXPECT_EQ(save_snapshot(path("x"), state, {.settings = {.max_depth = 33}, .base = base}).error().kind(),
            ErrorKind::invalid_argument);
}

TEST_F(SaveSnapshot, ReadsEverySourceByteOnce) {
  const Bytes weights = bf16_weights(1'000'000, 10);
  std::vector<std::atomic<int>> reads(weights.size());
  State state;
  state.tensors.push_back(source("w", DType::bf16, {1'000'000}, weights));
  state.tensors[0].data = nullptr;
  state.tensors[0].read = [&](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
    for (std::size_t i = 0; i < out.size(); ++i) reads[offset + i].fetch_add(1, std::memory_order_relaxed);
    std::memcpy(out.data(), weights.data() + offset, out.size());
    return {};
  };
  ASSERT_TRUE(save_snapshot(path("a.bsnap"), state).has_value());
  EXPECT_TRUE(std::ranges::all_of(reads, [](const auto& count) { return count == 1; }));
}

TEST_F(SaveSnapshot, NamesATensorThatCannotBeReadAndLeavesNoFile) {
  const Bytes weights = bf16_weights(1'000'000, 11);
  State state;
  state.tensors.push_back(source("good", DType::bf16, {1'000'000}, weights));
  state.tensors.push_back(source("bad", DType::bf16, {1'000'000}, weights));
  state.tensors[1].data = nullptr;
  state.tensors[1].read = [](std::uint64_t, std::span<std::byte>) -> Result<void> {
    return tl::unexpected(Error(ErrorKind::io, "the cable was cut"));
  };
  const auto saved = save_snapshot(path("a.bsnap"), state);
  ASSERT_FALSE(saved.has_value());
  EXPECT_EQ(saved.error().kind(), ErrorKind::io);
  EXPECT_NE(saved.error().message().find("tensor 'bad'"), std::string::npos) << saved.error().message();
  EXPECT_TRUE(files().empty());
}

TEST_F(SaveSnapshot, LeavesNoFileWhenCancelled) {
  const Bytes weights = bf16_weights(2'000'000, 12);
  State state;
  state.tensors.push_back(source("w", DType::bf16, {2'000'000}, weights));
  std::uint64_t last = 0;
  const auto progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, weights.size());
    last = done;
    return done < total / 2;
  };
  const auto saved = save_snapshot(path("a.bsnap"), state, {.progress = progress});
  ASSERT_FALSE(saved.has_value());
  EXPECT_EQ(saved.error().kind(), ErrorKind::cancelled);
  EXPECT_TRUE(files().empty());
}

TEST_F(SaveSnapshot, ReportsTheEndOnTheThreadOfTheCaller) {
  const Bytes weights = bf16_weights(20'000'000, 12);
  State state;
  state.tensors.push_back(source("w", DType::bf16, {20'000'000}, weights));
  std::vector<std::thread::id> ends;
  const auto progress = [&](std::uint64_t done, std::uint64_t total) {
    if (done == total) ends.push_back(std::this_thread::get_id());
    return done < total;
  };
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(save_snapshot(path("a.bsnap"), state, {.threads = 4, .progress = progress}).error().kind(),
              ErrorKind::cancelled);
  }
  EXPECT_THAT(ends, ::testing::ElementsAreArray(std::vector(5, std::this_thread::get_id())));
  EXPECT_TRUE(files().empty());
}

TEST_F(SaveSnapshot, KeepsAnExistingFileWithoutOverwrite) {
  const Bytes weights = bf16_weights(1000, 13);
  State state;
  state.tensors.push_back(source("w", DType::bf16, {1000}, weights));
  ASSERT_TRUE(save_snapshot(path("a.bsnap"), state).has_value());
  const Bytes before = contents("a.bsnap");
  state.tensors[0].info.name = "v";
  EXPECT_EQ(save_snapshot(path("a.bsnap"), state).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(contents("a.bsnap"), before);
  EXPECT_TRUE(save_snapshot(path("a.bsnap"), state, {.overwrite = true}).has_value());
  EXPECT_NE(contents("a.bsnap"), before);
}

TEST_F(SaveSnapshot, RejectsInvalidStatesAndNamesTheTensor) {
  const Bytes bytes(64);
  const auto kind_of = [&](auto change) {
    State state;
    state.tensors.push_back(source("first", DType::f32, {16}, bytes));
    state.tensors.push_back(source("second", DType::f32, {16}, bytes));
    change(state);
    const auto saved = save_snapshot(path("x.bsnap"), state);
    if (saved.has_value()) return ErrorKind::internal;
    EXPECT_NE(saved.error().message().find("tensor '"), std::string::npos) << saved.error().message();
    return saved.error().kind();
  };
  constexpr auto kRefused = ErrorKind::invalid_argument;
  EXPECT_EQ(kind_of([](State& s) { s.tensors[1].info.name = "first"; }), kRefused);
  EXPECT_EQ(kind_of([](State& s) { s.tensors[1].info.shape = {15}; }), kRefused);
  EXPECT_EQ(kind_of([](State& s) { s.tensors[1].info.dtype_name = "F16"; }), kRefused);
  EXPECT_EQ(kind_of([](State& s) { s.tensors[1].data = nullptr; }), kRefused);
  EXPECT_EQ(kind_of([](State& s) { s.tensors[0].info.alias_of = 1; }), kRefused);
  EXPECT_EQ(kind_of([](State& s) { s.tensors[1].info.alias_of = 1; }), kRefused);
  EXPECT_EQ(kind_of([](State& s) { s.tensors[1].info.shard = ShardBox{{16}, {1}}; }), kRefused);
  EXPECT_EQ(kind_of([](State& s) { s.tensors[1].info.shard = ShardBox{{16, 1}, {0}}; }), kRefused);
  EXPECT_EQ(kind_of([](State& s) { s.tensors[1].info.name = std::string(70'000, 'x'); }), kRefused);
  EXPECT_EQ(kind_of([](State& s) { s.tensors[1].info.name = "\xC3("; }), kRefused);
  EXPECT_EQ(kind_of([](State& s) { s.tensors[1].info.shape.assign(300, 1); }), kRefused);
  EXPECT_TRUE(files().empty());
}

TEST_F(SaveSnapshot, StoresSmallTensorsInThePool) {
  const Bytes steps = random_bytes(4, 14);
  State state;
  std::uint64_t header_like = 0;
  for (int i = 0; i < 10'000; ++i) {
    state.tensors.push_back(source("optimizer.state." + std::to_string(i) + ".step", DType::f32, {}, steps));
    header_like += state.tensors.back().info.name.size() + 54;
  }
  const auto saved = save_snapshot(path("a.bsnap"), state);
  ASSERT_TRUE(saved.has_value());
  EXPECT_EQ(saved->chunks, 1U);
  EXPECT_LT(saved->stored_bytes, header_like);
  const auto snapshot = Snapshot::open(path("a.bsnap")).value();
  EXPECT_EQ(read_tensor(*snapshot, "optimizer.state.9999.step"), steps);
}

// The base equals the chunk only where the planner and the chosen codec take their samples.
TEST_F(SaveSnapshot, CompressesAChunkWhoseSampleIsMisleading) {
  const Bytes weights = bf16_weights(kChunkElements, 16);
  Bytes base(weights.size());
  std::mt19937_64 random(18);
  for (std::byte& byte : base) byte = static_cast<std::byte>(random());
  const auto agree = [&](std::uint64_t first, std::uint64_t elements) {
    std::memcpy(base.data() + 2 * first, weights.data() + 2 * first, 2 * elements);
  };
  for (std::uint64_t run = 0; run < 16; ++run) agree((kChunkElements - 1024) * run / 15, 1024);
  for (std::uint64_t run = 0; run < 64; ++run) agree(run * (kChunkElements / 64), 128);
  State before;
  before.tensors.push_back(source("w", DType::bf16, {kChunkElements}, base));
  State after = before;
  after.tensors[0].data = weights.data();
  ASSERT_TRUE(save_snapshot(path("base"), before).has_value());
  ASSERT_TRUE(save_snapshot(path("delta"), after, {.base = Snapshot::open(path("base")).value()}).has_value());
  const auto snapshot = Snapshot::open(path("delta"), {.bases = nullptr, .base_paths = {path("base")}}).value();
  EXPECT_NE(snapshot->chunk_info(0, 0).value().codec, "raw");
  EXPECT_EQ(read_tensor(*snapshot, "w"), weights);
}

TEST_F(SaveSnapshot, UsesOnlyTheCodecsOfThePolicy) {
  const Bytes weights = bf16_weights(500'000, 15);
  Bytes changed = weights;
  for (std::size_t i = 0; i < changed.size(); i += 20) changed[i] ^= std::byte{3};
  const Bytes zeros(4 * 400'000);
  State before;
  before.tensors.push_back(source("w", DType::bf16, {500'000}, weights));
  before.tensors.push_back(source("optimizer.exp_avg", DType::f32, {400'000}, zeros));
  State after = before;
  after.tensors[0].data = changed.data();
  const auto codecs = [&](Policy policy) {
    const auto base_path = path(std::string(policy_name(policy)) + "-base");
    EXPECT_TRUE(
        save_snapshot(base_path, before, {.settings = {.policy = policy, .objective = Objective::ratio}}).has_value());
    const auto delta_path = path(std::string(policy_name(policy)) + "-delta");
    EXPECT_TRUE(save_snapshot(delta_path, after,
                              {.settings = {.policy = policy, .objective = Objective::ratio},
                               .base = Snapshot::open(base_path).value()})
                    .has_value());
    const auto snapshot = Snapshot::open(delta_path, {.bases = nullptr, .base_paths = {base_path}}).value();
    EXPECT_EQ(read_tensor(*snapshot, "w"), changed);
    EXPECT_EQ(read_tensor(*snapshot, "optimizer.exp_avg"), zeros);
    return std::string(snapshot->chunk_info(0, 0).value().codec) + " " +
           std::string(snapshot->chunk_info(1, 0).value().codec);
  };
  EXPECT_EQ(codecs(Policy::raw), "raw raw");
  EXPECT_EQ(codecs(Policy::lmc), "byte_group byte_group");
  EXPECT_EQ(codecs(Policy::bitsnap), "bitmask clustered");
  EXPECT_EQ(codecs(Policy::lossless), "byte_group same");
}

}  // namespace
}  // namespace bitsnap
