// States that are one optimizer step apart: which tensors are computed, under which names, in chains, when a file is
// rewritten, and while another thread writes to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "codec/optimizer_step/trained_step_testing.hpp"
#include "restore/read_context.hpp"
#include "restore/state_builder_testing.hpp"
#include "save/state_testing.hpp"
#include "save/stepped_training_testing.hpp"

namespace bitsnap::save {
namespace {

using codec::trained_bytes;
using codec::TrainedState;

TEST(StepCoding, StoresOnlyTheFirstMomentInAnyOrderOfTensors) {
  for (const std::string_view order : {"xmv", "vxm", "mvx", "xvm"}) {
    SCOPED_TRACE(order);
    SteppedTraining training;
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
      EXPECT_LT(stored_bytes(snapshot, name), 4 * kStepElements / 40) << name;
      EXPECT_EQ(read_tensor(snapshot, name), training.bytes_of(0, which)) << name;
      EXPECT_EQ(chunks_of(snapshot, name)[0].depth, 1U);
    }
    EXPECT_EQ(read_tensor(snapshot, "exp_avg.w"), training.bytes_of(0, 'm'));
    EXPECT_TRUE(snapshot.verify().value().empty());
  }
}

TEST(StepCoding, CodesWeightsAgainstMastersThatAreComputed) {
  SteppedTraining training;
  Bytes weight = rounded(training.bytes_of(0, 'x'));
  const auto state_of = [&] {
    State state;
    state.tensors.push_back(source("model.w", DType::bf16, {kStepElements}, weight));
    training.add(state);
    return state;
  };
  Chain chain;
  chain.save(state_of());
  training.step();
  weight = rounded(training.bytes_of(0, 'x'));
  const Snapshot& snapshot = chain.save(state_of());
  EXPECT_EQ(stored_bytes(snapshot, "model.w"), 2U);
  EXPECT_TRUE(is_all_stepped(snapshot, "master.w"));
  EXPECT_EQ(read_tensor(snapshot, "model.w"), weight);
  EXPECT_TRUE(snapshot.verify().value().empty());
}

TEST(StepCoding, ComputesAveragesOfWeights) {
  constexpr float kRate = 0.001F;
  for (const auto& [weights, averages] :
       {std::pair("model.w", "ema.w"), std::pair("master.w", "ema_model.module.w"), std::pair("w", "model_ema.w")}) {
    SCOPED_TRACE(averages);
    SteppedTraining training;
    Bytes average = training.bytes_of(0, 'x');
    const auto state_of = [&] {
      State state;
      state.tensors.push_back(source(averages, DType::f32, {kStepElements}, average));
      training.add(state, {weights, "exp_avg.w", "exp_avg_sq.w"});
      return state;
    };
    Chain chain;
    chain.save(state_of());
    training.step();
    const Bytes weight = training.bytes_of(0, 'x');
    for (std::size_t i = 0; i < kStepElements; ++i) {
      float x = 0;
      float w = 0;
      std::memcpy(&x, average.data() + 4 * i, 4);
      std::memcpy(&w, weight.data() + 4 * i, 4);
      x = x + kRate * (w - x);
      std::memcpy(average.data() + 4 * i, &x, 4);
    }
    const Snapshot& snapshot = chain.save(state_of());
    EXPECT_LT(stored_bytes(snapshot, averages), 200U);
    EXPECT_EQ(read_tensor(snapshot, averages), average);
    EXPECT_TRUE(is_all_stepped(snapshot, weights));
    EXPECT_TRUE(snapshot.verify().value().empty());
  }
}

TEST(StepCoding, TakesALayerThatIsNamedLikeAnAverageForAParameter) {
  for (const Names& names : {Names{"model.ema.w", "exp_avg.ema.w", "exp_avg_sq.ema.w"},
                             Names{"model.shadow.w", "exp_avg.0", "exp_avg_sq.0"}}) {
    SCOPED_TRACE(names.x);
    SteppedTraining training;
    Chain chain;
    for (int number = 0; number < 2; ++number) {
      State state;
      training.add(state, names);
      const Snapshot& snapshot = chain.save(state);
      EXPECT_EQ(is_all_stepped(snapshot, names.x), number > 0);
      training.step();
    }
  }
}

TEST(StepCoding, FindsMomentsByTheNamesOfSeveralFrameworks) {
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
    SteppedTraining training;
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

// The optimizer numbers parameters in the order of its groups, which is not the order of the model.
TEST(StepCoding, FindsParametersBySamplesIfNamesDoNotMatch) {
  constexpr std::size_t kParameters = 5;
  SteppedTraining training(kParameters, 5000);
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

// Masters are numbered in the order of the model, and moments in the order of the optimizer's groups.
TEST(StepCoding, FindsParametersBySamplesIfNumbersMatchWrongly) {
  constexpr std::size_t kParameters = 4;
  SteppedTraining training(kParameters, 5000);
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

// Most rows of an embedding belong to tokens that did not occur; only weight decay changes them.
TEST(StepCoding, FindsParametersOfWhichFewRowsMoved) {
  constexpr std::size_t kRow = 250;
  for (const std::size_t every : {3U, 20U}) {
    SteppedTraining training(3, 200 * kRow);
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

TEST(StepCoding, IgnoresMomentsThatAreNan) {
  SteppedTraining training(2, 5000);
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

TEST(StepCoding, AllowsForcingTheCodec) {
  SteppedTraining training;
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

TEST(StepCoding, ReadsAChainOfStepsBitForBit) {
  SteppedTraining training;
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

TEST(StepCoding, DecodesEachChunkOnceWhenReadingARange) {
  SteppedTraining training;
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
  // A parameter needs one chunk of each of its three tensors for each step, a first moment only its own.
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

TEST(StepCoding, UsesOtherCodecsAcrossSeveralSteps) {
  SteppedTraining training;
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

TEST(StepCoding, GivesTheSameBytesForAnyNumberOfThreads) {
  SteppedTraining training(3);
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
  expect_same_bytes_for_any_threads(state_of(), {}, chain.last());
}

// The first moment changes after it was stored and before it is read again as an input.
TEST(StepCoding, DoesNotReferToAMomentThatChangesDuringTheSave) {
  SteppedTraining training;
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
    // Samples are small. Of the larger reads of a chunk, the first one is stored.
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

TEST(StepCoding, RewritesAStepWithoutItsBases) {
  SteppedTraining training;
  State state;
  training.add(state);
  Chain chain;
  const SnapshotId first = chain.save(state).id();
  training.step();
  State next;
  training.add(next);
  const Snapshot& second = chain.save(next);
  ASSERT_TRUE(is_all_stepped(second, "master.w"));
  const auto written = rewrite(second, {first});
  ASSERT_TRUE(written.has_value()) << written.error().message();
  const auto alone = open_file("1.bsnap", written->file);
  EXPECT_EQ(alone->id(), second.id());
  EXPECT_TRUE(alone->bases().empty());
  EXPECT_EQ(read_tensor(*alone, "master.w"), training.bytes_of(0, 'x'));
  EXPECT_EQ(read_tensor(*alone, "exp_avg_sq.w"), training.bytes_of(0, 'v'));
}

// Names that do not tell which moments belong to a parameter, as in torch's state_dict().
TEST(StepCoding, RewritesAgainstALaterStateWhateverTheNames) {
  SteppedTraining training(2);
  const auto state_of = [&] {
    State state;
    for (const std::size_t i : {1U, 0U}) {
      training.add(state, {"model." + std::to_string(i) + ".w", "o.0.exp_avg", "o.0.exp_avg_sq"}, i, "x");
    }
    for (const std::size_t i : {0U, 1U}) {
      const std::string number = std::to_string(i);
      training.add(state, {"", "o." + number + ".exp_avg", "o." + number + ".exp_avg_sq"}, i, "mv");
    }
    return state;
  };
  const auto log = std::make_shared<container::ReadLog>();
  const auto first = open_file("first.bsnap", write_state(state_of(), {}).value().file, nullptr, log);
  training.step();
  const auto later = open_file("later.bsnap", write_state(state_of(), {}).value().file);
  SingleBase found(later);
  const auto written = rewrite_by({.later_depth = 1}, *first, {}, &found);
  ASSERT_TRUE(written.has_value()) << written.error().message();
  // A chunk is decoded once for all parts of a sample, and once more to be encoded.
  EXPECT_LT(log->reads().size(), 30U);
  const auto bases = std::make_shared<restore::MapBases>();
  bases->add(later);
  const auto back = open_file("back.bsnap", written->file, bases);
  for (const std::string_view name : {"model.0.w", "model.1.w"}) EXPECT_TRUE(is_all_stepped(*back, name)) << name;
  EXPECT_TRUE(back->verify().value().empty());
}

TEST(StepCoding, RewritesAStateAgainstTheOneAfterIt) {
  SteppedTraining training;
  Bytes weight = rounded(training.bytes_of(0, 'x'));
  const Bytes before[] = {training.bytes_of(0, 'x'), training.bytes_of(0, 'm'), training.bytes_of(0, 'v'), weight};
  const auto state_of = [&] {
    State state;
    state.tensors.push_back(source("model.w", DType::bf16, {kStepElements}, weight));
    training.add(state);
    return state;
  };
  const WrittenFile first = write_state(state_of(), {}).value();
  training.step();
  weight = rounded(training.bytes_of(0, 'x'));
  const auto later = open_file("later.bsnap", write_state(state_of(), {}).value().file);
  const auto first_file = open_file("first.bsnap", first.file);
  std::optional<Bytes> same;
  for (const unsigned threads : {1U, 2U, 5U}) {
    SingleBase bases(later);
    const auto written = rewrite_by({.later_depth = 1}, *first_file, {.threads = threads}, &bases);
    ASSERT_TRUE(written.has_value()) << written.error().message();
    if (!same) same = written->file;
    EXPECT_EQ(written->file, *same) << threads << " threads";
  }
  const auto bases = std::make_shared<restore::MapBases>();
  bases->add(later);
  const auto back = open_file("back.bsnap", *same, bases);
  EXPECT_EQ(back->id(), first_file->id());
  EXPECT_LT(same->size(), first.file.size() / 2);
  EXPECT_TRUE(is_all_stepped(*back, "master.w"));
  EXPECT_TRUE(is_all_stepped(*back, "exp_avg_sq.w"));
  EXPECT_EQ(stored_bytes(*back, "model.w"), 2U);
  const std::string_view names[] = {"master.w", "exp_avg.w", "exp_avg_sq.w", "model.w"};
  for (std::size_t i = 0; i < std::size(names); ++i) EXPECT_EQ(read_tensor(*back, names[i]), before[i]) << names[i];
  EXPECT_TRUE(back->verify().value().empty());
}

// Tensors of the same names and sizes that do not follow from a step.
TEST(StepCoding, StoresOtherContentUnderTheSameNames) {
  SteppedTraining training;
  State state;
  training.add(state);
  Chain chain;
  chain.save(state);
  training.step();
  SteppedTraining other(2);
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
