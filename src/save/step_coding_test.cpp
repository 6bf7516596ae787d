// States of an optimizer that are one step apart: found whatever they are called, stored as next to nothing, and read
// again through chains, in any order, and while somebody writes to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "codec/optimizer_step/trained_step_testing.hpp"
#include "os/file_system_fake.hpp"
#include "restore/read_context.hpp"
#include "save/snapshot_rewriter.hpp"
#include "save/state_testing.hpp"

namespace bitsnap::save {
namespace {

using codec::trained_bytes;
using codec::TrainedState;

constexpr std::size_t kElements = kChunkElements + 1000;

// What the tensors of one parameter are called.
struct Names {
  std::string x = "master.w";
  std::string m = "exp_avg.w";
  std::string v = "exp_avg_sq.w";
};

// The state of a training with some parameters of one size, as bytes that outlive it.
class Training {
 public:
  explicit Training(std::size_t parameters = 1, std::size_t elements = kElements) {
    for (std::size_t i = 0; i < parameters; ++i) states_.push_back(codec::trained_state(elements, 100 + i));
    write();
  }

  void step() {
    ++steps_;
    for (std::size_t i = 0; i < states_.size(); ++i) codec::take_step(states_[i], {}, 1000 * steps_ + i);
    write();
  }

  // Of so many rows one has moments, and keeps getting gradients.
  void keep_rows(std::size_t row_elements, std::size_t every) {
    for (TrainedState& state : states_) {
      for (std::size_t i = 0; i < state.m.size(); ++i) {
        if (i / row_elements % every != 0) state.m[i] = state.v[i] = 0;
      }
    }
    write();
  }

  // Adds the tensors of one parameter, in the order that the letters say.
  void add(State& state, const Names& names = {}, std::size_t parameter = 0, std::string_view order = "xmv") const {
    for (const char which : order) {
      const std::string& name = which == 'x' ? names.x : which == 'm' ? names.m : names.v;
      const Bytes& bytes = bytes_of(parameter, which);
      state.tensors.push_back(source(name, DType::f32, {bytes.size() / 4}, bytes));
    }
  }

  [[nodiscard]] const Bytes& bytes_of(std::size_t parameter, char which) const {
    return bytes_[3 * parameter + (which == 'x' ? 0 : which == 'm' ? 1 : 2)];
  }

 private:
  // In place, so that states that refer to the bytes stay right.
  void write() {
    bytes_.resize(3 * states_.size());
    for (std::size_t i = 0; i < states_.size(); ++i) {
      bytes_[3 * i] = trained_bytes(states_[i].x);
      bytes_[3 * i + 1] = trained_bytes(states_[i].m);
      bytes_[3 * i + 2] = trained_bytes(states_[i].v);
    }
  }

  std::vector<TrainedState> states_;
  std::vector<Bytes> bytes_;
  std::uint64_t steps_ = 0;
};

std::vector<ChunkInfo> chunks_of(const Snapshot& snapshot, std::string_view name) {
  const std::size_t stream = *snapshot.stream_of(*snapshot.find(name));
  std::vector<ChunkInfo> chunks;
  for (std::uint64_t i = 0; i < snapshot.streams()[stream].chunk_count(); ++i) {
    chunks.push_back(snapshot.chunk_info(stream, i).value());
  }
  return chunks;
}

bool is_all_stepped(const Snapshot& snapshot, std::string_view name) {
  return std::ranges::all_of(chunks_of(snapshot, name),
                             [](const ChunkInfo& chunk) { return chunk.codec == "optimizer_step"; });
}

std::uint64_t stored_bytes(const Snapshot& snapshot, std::string_view name) {
  std::uint64_t bytes = 0;
  for (const ChunkInfo& chunk : chunks_of(snapshot, name)) bytes += chunk.stored_bytes;
  return bytes;
}

TEST(StepCoding, AStepIsStoredAsItsFirstMomentInWhateverOrderTensorsStand) {
  for (const std::string_view order : {"xmv", "vxm", "mvx", "xvm"}) {
    SCOPED_TRACE(order);
    Training training;
    State state;
    training.add(state, {}, 0, order);
    Chain chain;
    chain.save(state);
    training.step();
    State next;
    training.add(next, {}, 0, order);
    const Snapshot& snapshot = chain.save(next);
    for (const auto& [name, which] : {std::pair("master.w", 'x'), std::pair("exp_avg_sq.w", 'v')}) {
      EXPECT_TRUE(is_all_stepped(snapshot, name)) << name;
      EXPECT_LT(stored_bytes(snapshot, name), 4 * kElements / 40) << name;
      EXPECT_EQ(read_tensor(snapshot, name), training.bytes_of(0, which)) << name;
      EXPECT_EQ(chunks_of(snapshot, name)[0].depth, 1U);
    }
    EXPECT_EQ(read_tensor(snapshot, "exp_avg.w"), training.bytes_of(0, 'm'));
    EXPECT_TRUE(snapshot.verify().value().empty());
  }
}

TEST(StepCoding, WeightsAreTheRoundingsOfMastersThatFollowFromTheStep) {
  Training training;
  const auto rounded = [&] {
    const Bytes& masters = training.bytes_of(0, 'x');
    Bytes bytes(masters.size() / 2);
    for (std::size_t i = 0; 2 * i < bytes.size(); ++i) {
      std::uint32_t bits;
      std::memcpy(&bits, masters.data() + 4 * i, sizeof bits);
      bits += 0x7fff + (bits >> 16 & 1);
      std::memcpy(bytes.data() + 2 * i, reinterpret_cast<const char*>(&bits) + 2, 2);
    }
    return bytes;
  };
  Bytes weight = rounded();
  const auto state_of = [&] {
    State state;
    state.tensors.push_back(source("model.w", DType::bf16, {kElements}, weight));
    training.add(state);
    return state;
  };
  Chain chain;
  chain.save(state_of());
  training.step();
  weight = rounded();
  const Snapshot& snapshot = chain.save(state_of());
  EXPECT_EQ(stored_bytes(snapshot, "model.w"), 2U);
  EXPECT_TRUE(is_all_stepped(snapshot, "master.w"));
  EXPECT_EQ(read_tensor(snapshot, "model.w"), weight);
  EXPECT_TRUE(snapshot.verify().value().empty());
}

TEST(StepCoding, MomentsAreFoundByTheNamesOfManyFrameworks) {
  const Names conventions[] = {
      {"model.layers.0.w", "optimizer.state.layers.0.w.exp_avg", "optimizer.state.layers.0.w.exp_avg_sq"},
      {"optimizer.state.fp32_param.decoder.w", "optimizer.state.exp_avg.decoder.w",
       "optimizer.state.exp_avg_sq.decoder.w"},
      {"transformer.h.0.w", "optimizer.state.0.exp_avg", "optimizer.state.0.exp_avg_sq"},
      {"single_partition_of_fp32_groups.0", "base_optimizer_state.state.0.exp_avg",
       "base_optimizer_state.state.0.exp_avg_sq"},
  };
  for (const Names& names : conventions) {
    SCOPED_TRACE(names.m);
    Training training;
    State state;
    training.add(state, names);
    Chain chain;
    chain.save(state);
    training.step();
    State next;
    training.add(next, names);
    const Snapshot& snapshot = chain.save(next);
    EXPECT_TRUE(is_all_stepped(snapshot, names.x));
    EXPECT_TRUE(is_all_stepped(snapshot, names.v));
  }
}

// Numbers in the order of the optimizer's groups, which is not that of the model.
TEST(StepCoding, ParametersAreFoundByTheWayTheyWentWhereNamesSayNothing) {
  constexpr std::size_t kParameters = 5;
  Training training(kParameters, 5000);
  const auto state_of = [&] {
    State state;
    for (std::size_t i = 0; i < kParameters; ++i) {
      training.add(state, {.x = "layer." + std::to_string(i) + ".weight", .m = {}, .v = {}}, i, "x");
    }
    for (std::size_t i = 0; i < kParameters; ++i) {
      const std::string number = "optim." + std::to_string(i + 40);
      training.add(state, {.x = {}, .m = number + ".exp_avg", .v = number + ".exp_avg_sq"}, i * 2 % kParameters, "mv");
    }
    return state;
  };
  Chain chain;
  chain.save(state_of());
  training.step();
  const Snapshot& snapshot = chain.save(state_of());
  for (std::size_t i = 0; i < kParameters; ++i) {
    const std::string name = "layer." + std::to_string(i) + ".weight";
    EXPECT_TRUE(is_all_stepped(snapshot, name)) << name;
    EXPECT_EQ(read_tensor(snapshot, name), training.bytes_of(i, 'x'));
  }
}

// As where a list of masters counts in the order of the model, and the optimizer in that of its groups.
TEST(StepCoding, NumbersThatAgreeByChanceDoNotDeceive) {
  constexpr std::size_t kParameters = 4;
  Training training(kParameters, 5000);
  const auto state_of = [&] {
    State state;
    for (std::size_t i = 0; i < kParameters; ++i) {
      const std::string number = std::to_string(i);
      training.add(state, {.x = "masters." + number, .m = {}, .v = {}}, i, "x");
      const std::string of_optimizer = "optimizer.state." + number;
      training.add(state, {.x = {}, .m = of_optimizer + ".exp_avg", .v = of_optimizer + ".exp_avg_sq"},
                   (i + 1) % kParameters, "mv");
    }
    return state;
  };
  Chain chain;
  chain.save(state_of());
  training.step();
  const Snapshot& snapshot = chain.save(state_of());
  for (std::size_t i = 0; i < kParameters; ++i) {
    const std::string number = std::to_string(i);
    EXPECT_TRUE(is_all_stepped(snapshot, "masters." + number)) << number;
    EXPECT_TRUE(is_all_stepped(snapshot, "optimizer.state." + number + ".exp_avg_sq")) << number;
  }
}

// Most rows of an embedding are of tokens that did not come up: nothing moved them but decay.
TEST(StepCoding, ParametersOfWhichFewRowsMovedAreFound) {
  constexpr std::size_t kRow = 250;
  for (const std::size_t every : {3U, 20U}) {
    Training training(3, 200 * kRow);
    training.keep_rows(kRow, every);
    const auto state_of = [&] {
      State state;
      for (std::size_t i = 0; i < 3; ++i) {
        const std::string number = "optim." + std::to_string(7 - i);
        training.add(state, {"layer" + std::to_string(i), number + ".exp_avg", number + ".exp_avg_sq"}, i);
      }
      return state;
    };
    training.step();
    Chain chain;
    chain.save(state_of());
    training.step();
    const Snapshot& snapshot = chain.save(state_of());
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string name = "layer" + std::to_string(i);
      EXPECT_TRUE(is_all_stepped(snapshot, name)) << name;
      EXPECT_LT(stored_bytes(snapshot, name), 200 * kRow * 4 / 20) << name;
      EXPECT_EQ(read_tensor(snapshot, name), training.bytes_of(i, 'x'));
    }
  }
}

TEST(StepCoding, MomentsThatAreNoNumbersTellNothing) {
  Training training(2, 5000);
  for (const std::size_t every : {1U, 3U}) {
    Bytes moment = training.bytes_of(1, 'm');
    for (std::size_t i = 0; i < moment.size(); i += 4 * every) std::memset(moment.data() + i, 0xff, 4);
    const auto state_of = [&] {
      State state;
      training.add(state, {"layer", {}, {}}, 0, "x");
      state.tensors.push_back(source("optim.0.exp_avg", DType::f32, {moment.size() / 4}, moment));
      training.add(state, {{}, {}, "optim.0.exp_avg_sq"}, 1, "v");
      return state;
    };
    Chain chain;
    chain.save(state_of());
    training.step();
    const Snapshot& snapshot = chain.save(state_of());
    EXPECT_EQ(read_tensor(snapshot, "layer"), training.bytes_of(0, 'x'));
    EXPECT_TRUE(snapshot.verify().value().empty());
  }
}

TEST(StepCoding, TheCodecCanBeForced) {
  Training training;
  State state;
  training.add(state);
  Chain chain;
  chain.save(state);
  training.step();
  State next;
  training.add(next);
  const Snapshot& snapshot = chain.save(next, {.settings = {.codec = "optimizer_step"}});
  EXPECT_TRUE(is_all_stepped(snapshot, "master.w"));
  EXPECT_TRUE(is_all_stepped(snapshot, "exp_avg_sq.w"));
  EXPECT_EQ(chunks_of(snapshot, "exp_avg.w")[0].codec, "raw");
}

TEST(StepCoding, AChainOfStepsIsReadBitForBit) {
  Training training;
  Chain chain;
  for (std::uint32_t number = 0; number < 6; ++number) {
    State state;
    training.add(state);
    const Snapshot& snapshot = chain.save(state, {.settings = {.max_depth = 3}});
    const std::uint32_t depth = number % 4;
    EXPECT_EQ(chunks_of(snapshot, "master.w")[0].depth, depth);
    EXPECT_EQ(is_all_stepped(snapshot, "master.w"), depth > 0);
    EXPECT_EQ(is_all_stepped(snapshot, "exp_avg_sq.w"), depth > 0);
    for (const auto& [name, which] :
         {std::pair("master.w", 'x'), std::pair("exp_avg.w", 'm'), std::pair("exp_avg_sq.w", 'v')}) {
      EXPECT_EQ(read_tensor(snapshot, name), training.bytes_of(0, which));
    }
    training.step();
  }
  EXPECT_TRUE(chain.last()->verify().value().empty());
}

TEST(StepCoding, ReadingARangeDecodesEachChunkThatItNeedsOnce) {
  Training training;
  Chain chain;
  constexpr std::uint32_t kDepth = 8;
  for (std::uint32_t number = 0; number <= kDepth; ++number) {
    State state;
    training.add(state);
    chain.save(state);
    if (number < kDepth) training.step();
  }
  const Snapshot& snapshot = *chain.last();
  ASSERT_EQ(chunks_of(snapshot, "master.w")[1].depth, kDepth);
  Bytes range(400);
  // Of parameter and moments one chunk of each step; of a moment its own.
  for (const auto& [name, which, most] :
       {std::tuple("master.w", 'x', 3 * (kDepth + 1)), std::tuple("exp_avg_sq.w", 'v', 2 * (kDepth + 1)),
        std::tuple("exp_avg.w", 'm', kDepth + 1)}) {
    ReadContext context;
    ASSERT_TRUE(snapshot.read_elements(*snapshot.stream_of(*snapshot.find(name)), kChunkElements + 5, range, context));
    const Bytes& all = training.bytes_of(0, which);
    EXPECT_TRUE(std::equal(range.begin(), range.end(), all.begin() + 4 * (kChunkElements + 5)));
    EXPECT_LE(context.decodes(), most) << name;
  }
}

TEST(StepCoding, SeveralStepsAtOnceAreStoredInAnotherWay) {
  Training training;
  State state;
  training.add(state);
  Chain chain;
  chain.save(state);
  for (int i = 0; i < 5; ++i) training.step();
  State next;
  training.add(next);
  const Snapshot& snapshot = chain.save(next);
  for (const std::string_view name : {"master.w", "exp_avg_sq.w"}) {
    for (const ChunkInfo& chunk : chunks_of(snapshot, name)) EXPECT_NE(chunk.codec, "optimizer_step");
  }
  EXPECT_EQ(read_tensor(snapshot, "master.w"), training.bytes_of(0, 'x'));
}

TEST(StepCoding, TheBytesDoNotDependOnThreads) {
  Training training(3);
  const auto state_of = [&] {
    State state;
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string end = ".w" + std::to_string(i);
      training.add(state, {"master" + end, "exp_avg" + end, "exp_avg_sq" + end}, i);
    }
    return state;
  };
  Chain chain;
  chain.save(state_of());
  training.step();
  std::optional<Bytes> first;
  for (const unsigned threads : {1U, 2U, 5U}) {
    SingleBase bases(chain.last());
    Bytes bytes = write_state(state_of(), {.threads = threads}, &bases).value().file;
    if (!first)
      first = std::move(bytes);
    else
      EXPECT_EQ(bytes, *first) << threads << " threads";
  }
}

// Somebody writes to the first moment after it was stored and before it is looked at again.
TEST(StepCoding, AMomentThatChangesMeanwhileIsNotReferredTo) {
  Training training;
  State state;
  training.add(state);
  Chain chain;
  chain.save(state);
  training.step();
  State next;
  training.add(next);
  const Bytes moment = training.bytes_of(0, 'm');
  next.tensors[1].data = nullptr;
  std::atomic<std::uint64_t> whole_reads = 0;
  next.tensors[1].read = [&](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
    std::memcpy(out.data(), moment.data() + offset, out.size());
    // Samples are small. What is read to be coded comes first, of each chunk.
    if (out.size() > 256 && whole_reads++ % 3 > 0) out[0] ^= std::byte{1};
    return {};
  };
  SingleBase bases(chain.last());
  const WrittenFile written = write_state(next, {.threads = 1}, &bases).value();
  EXPECT_GT(whole_reads, 4U);
  const auto snapshot = open_file("1.bsnap", written.file, chain.bases({0}));
  for (const std::string_view name : {"master.w", "exp_avg_sq.w"}) {
    for (const ChunkInfo& chunk : chunks_of(*snapshot, name)) EXPECT_NE(chunk.codec, "optimizer_step") << name;
  }
  EXPECT_EQ(read_tensor(*snapshot, "master.w"), training.bytes_of(0, 'x'));
  EXPECT_EQ(read_tensor(*snapshot, "exp_avg_sq.w"), training.bytes_of(0, 'v'));
  EXPECT_TRUE(snapshot->verify().value().empty());
}

TEST(StepCoding, ARewrittenFileStandsWithoutItsBases) {
  Training training;
  State state;
  training.add(state);
  Chain chain;
  const SnapshotId first = chain.save(state).id();
  training.step();
  State next;
  training.add(next);
  const Snapshot& second = chain.save(next);
  ASSERT_TRUE(is_all_stepped(second, "master.w"));
  os::FakeFileSystem files;
  const auto file = files.create("/rewritten").value();
  const auto executor = exec::make_executor(2);
  const auto rewritten = rewrite_snapshot(second, {&first, 1}, nullptr, {}, *file, *executor);
  ASSERT_TRUE(rewritten.has_value()) << rewritten.error().message();
  ASSERT_TRUE(file->close());
  const auto alone = open_file("1.bsnap", os::read_file(files, "/rewritten", UINT64_MAX).value());
  EXPECT_EQ(alone->id(), second.id());
  EXPECT_TRUE(alone->bases().empty());
  EXPECT_EQ(read_tensor(*alone, "master.w"), training.bytes_of(0, 'x'));
  EXPECT_EQ(read_tensor(*alone, "exp_avg_sq.w"), training.bytes_of(0, 'v'));
}

// Tensors of the same names and sizes that no step leads to.
TEST(StepCoding, OtherContentUnderTheSameNamesIsStoredAsWell) {
  Training training;
  State state;
  training.add(state);
  Chain chain;
  chain.save(state);
  training.step();
  Training other(2);
  State next;
  training.add(next, {}, 0, "x");
  other.add(next, {}, 1, "mv");
  const Snapshot& snapshot = chain.save(next);
  EXPECT_EQ(read_tensor(snapshot, "master.w"), training.bytes_of(0, 'x'));
  EXPECT_EQ(read_tensor(snapshot, "exp_avg_sq.w"), other.bytes_of(1, 'v'));
  EXPECT_TRUE(snapshot.verify().value().empty());
}

}  // namespace
}  // namespace bitsnap::save
