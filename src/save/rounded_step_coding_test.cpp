// States wholly in BF16 that are one optimizer step apart: which tensors are computed.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "restore/state_builder_testing.hpp"
#include "save/state_testing.hpp"
#include "save/stepped_training_testing.hpp"

namespace bitsnap::save {
namespace {

TEST(RoundedStepCoding, StoresOnlyTheFirstMomentOfStatesInBf16) {
  SteppedTraining training(1, kStepElements, DType::bf16);
  Chain chain;
  for (int number = 0; number < 3; ++number) {
    State state;
    training.add(state, {.x = "model.w", .m = "exp_avg.w", .v = "exp_avg_sq.w"});
    const Snapshot& snapshot = chain.save(state);
    for (const auto& [name, which] : {std::pair("model.w", 'x'), std::pair("exp_avg_sq.w", 'v')}) {
      EXPECT_EQ(is_all_stepped(snapshot, name), number > 0) << name;
      EXPECT_EQ(read_tensor(snapshot, name), training.bytes_of(0, which)) << name;
      if (number > 0) {
        EXPECT_LT(stored_bytes(snapshot, name), 2 * kStepElements / 16) << name;
      }
    }
    EXPECT_TRUE(snapshot.verify().value().empty());
    training.step();
  }
}

// The copy looks like a master of the moments, from which the parameter is computed.
TEST(RoundedStepCoding, SavesMomentsBesideACopyOfThemInF32) {
  SteppedTraining training(1, kStepElements, DType::bf16);
  Chain chain;
  for (int number = 0; number < 3; ++number) {
    const Bytes moment = training.bytes_of(0, 'm');
    Bytes copy(2 * moment.size());
    for (std::size_t i = 0; i < moment.size(); i += 2)
      std::copy_n(moment.begin() + static_cast<std::ptrdiff_t>(i), 2,
                  copy.begin() + static_cast<std::ptrdiff_t>(2 * i + 2));
    State state;
    training.add(state, {.x = "model.w", .m = "exp_avg.w", .v = "exp_avg_sq.w"});
    state.tensors.push_back(source("copy.w", DType::f32, {kStepElements}, copy));
    const Snapshot& snapshot = chain.save(state);
    EXPECT_EQ(read_tensor(snapshot, "exp_avg.w"), moment);
    EXPECT_EQ(read_tensor(snapshot, "copy.w"), copy);
    EXPECT_EQ(read_tensor(snapshot, "model.w"), training.bytes_of(0, 'x'));
    EXPECT_TRUE(snapshot.verify().value().empty());
    training.step();
  }
}

// In BF16, most elements stay as they are in a step, so that no moments leave much.
TEST(RoundedStepCoding, FindsParametersInBf16BySamples) {
  constexpr std::size_t kParameters = 5;
  for (const double rate : {6e-4, 2e-5, 1e-7}) {
    SCOPED_TRACE(rate);
    SteppedTraining training(kParameters, 20'000, DType::bf16);
    const auto state_of = [&] {
      State state;
      for (std::size_t i = 0; i < kParameters; ++i) {
        training.add(state, {.x = "layer." + std::to_string(i) + ".weight", .m = {}, .v = {}}, i, "x");
      }
      for (std::size_t i = 0; i < kParameters; ++i) {
        const std::string number = "optim." + std::to_string(i + 40);
        training.add(state, {.x = {}, .m = number + ".exp_avg", .v = number + ".exp_avg_sq"}, i * 2 % kParameters,
                     "mv");
      }
      return state;
    };
    Chain chain;
    chain.save(state_of());
    training.step({.rate = rate});
    const Snapshot& snapshot = chain.save(state_of(), {.settings = {.objective = Objective::ratio}});
    for (std::size_t i = 0; i < kParameters; ++i) {
      const std::string name = "layer." + std::to_string(i) + ".weight";
      EXPECT_EQ(read_tensor(snapshot, name), training.bytes_of(i, 'x'));
      EXPECT_LT(stored_bytes(snapshot, name), 2 * 20'000 / 80) << name;
    }
    EXPECT_TRUE(snapshot.verify().value().empty());
  }
}

// Moments in F32 say nothing about parameters that were rounded.
TEST(RoundedStepCoding, KeepsMomentsOfOtherDtypesApart) {
  SteppedTraining training;
  Bytes weight = rounded(training.bytes_of(0, 'x'));
  const auto state_of = [&] {
    State state;
    state.tensors.push_back(source("model.w", DType::bf16, {kStepElements}, weight));
    training.add(state, {.x = {}, .m = "exp_avg.w", .v = "exp_avg_sq.w"}, 0, "mv");
    return state;
  };
  Chain chain;
  chain.save(state_of());
  training.step();
  weight = rounded(training.bytes_of(0, 'x'));
  const Snapshot& snapshot = chain.save(state_of());
  EXPECT_FALSE(codecs_of(snapshot, "model.w").contains("optimizer_step"));
  EXPECT_TRUE(is_all_stepped(snapshot, "exp_avg_sq.w"));
  EXPECT_EQ(read_tensor(snapshot, "model.w"), weight);
}

}  // namespace
}  // namespace bitsnap::save
