// Tests of optimizer_step: the prediction, finding the constants, and independence of the floating-point mode.
#include "codec/optimizer_step/optimizer_step.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <bitsnap/tensor.hpp>

#include "codec/builtin_codecs.hpp"
#include "codec/coding_testing.hpp"
#include "codec/optimizer_step/trained_step_testing.hpp"
#include "codec/trained_like_testing.hpp"

namespace bitsnap::codec {
namespace {

Floats floats_in(ConstByteSpan bytes) {
  Floats floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

class OptimizerStep : public CodecTest {
 protected:
  OptimizerStep() : CodecTest(optimizer_step_encoder()) {}

  StepConstants constants_of(const TestChunk& chunk) {
    const auto payload = encode_test_chunk(optimizer_step_encoder(), chunk, scratch_);
    StepConstants constants;
    if (!payload) {
      ADD_FAILURE() << "not expressed";
      return constants;
    }
    std::memcpy(&constants.keep, payload->data() + 1, sizeof(float));
    std::memcpy(&constants.step, payload->data() + 5, sizeof(float));
    std::memcpy(&constants.other, payload->data() + 9, sizeof(float));
    return constants;
  }
};

TEST_F(OptimizerStep, FindsTheBetasToTheLastBit) {
  for (const double beta1 : {0.9, 0.95, 0.8}) {
    for (const double beta2 : {0.95, 0.98, 0.99, 0.999, 0.9999}) {
      SCOPED_TRACE(std::to_string(beta1) + " " + std::to_string(beta2));
      const StepConstants found =
          constants_of(second_moment_chunk(train_step(100'000, {.beta1 = beta1, .beta2 = beta2}, 7)));
      EXPECT_EQ(found.keep, static_cast<float>(beta2));
      EXPECT_EQ(found.step, static_cast<float>(1 - beta2));
      EXPECT_EQ(found.other, static_cast<float>(1 - beta1));
    }
  }
}

TEST_F(OptimizerStep, StoresAlmostNothingForASecondMoment) {
  EXPECT_LT(stored_bits(second_moment_chunk(train_step(kChunkElements, {.beta2 = 0.95}, 1))), 0.8);
  EXPECT_LT(stored_bits(second_moment_chunk(train_step(kChunkElements, {.beta2 = 0.999}, 2))), 0.3);
  // Unusual hyperparameters.
  EXPECT_LT(stored_bits(second_moment_chunk(train_step(kChunkElements, {.beta1 = 0.912345, .beta2 = 0.9765432}, 3))),
            3);
}

TEST_F(OptimizerStep, StoresAlmostNothingForAParameter) {
  EXPECT_LT(stored_bits(parameter_chunk(train_step(kChunkElements, {}, 4))), 1);
  EXPECT_LT(stored_bits(parameter_chunk(train_step(kChunkElements, {.rate = 1e-6, .decay = 0}, 5))), 0.1);
  EXPECT_LT(stored_bits(parameter_chunk(train_step(kChunkElements, {.bias1 = 0.19, .bias2 = 0.0975}, 6))), 1);
  // A large epsilon.
  EXPECT_LT(stored_bits(parameter_chunk(train_step(kChunkElements, {.epsilon = 1e-4}, 7))), 1);
}

// The state before the step, from the one after it.
TEST_F(OptimizerStep, StoresLittleForOneStepBack) {
  for (const double beta2 : {0.95, 0.999}) {
    const TrainedStep t = train_step(kChunkElements, {.beta2 = beta2}, 14);
    const TestChunk moment{
        .dtype = DType::f32,
        .data = trained_bytes(t.before.v),
        .base = trained_bytes(t.after.v),
        .more = {{InputKind::base, trained_bytes(t.after.m)}, {InputKind::peer, trained_bytes(t.before.m)}}};
    EXPECT_LT(stored_bits(moment), 2) << beta2;
    const StepConstants found = constants_of(moment);
    EXPECT_EQ(found.keep, static_cast<float>(1 / beta2));
    EXPECT_NEAR(found.step, -(1 - beta2) / beta2, 1e-8);
    EXPECT_NEAR(found.other, 1 - 1 / 0.9, 1e-6);
    const TestChunk parameter{
        .dtype = DType::f32,
        .data = trained_bytes(t.before.x),
        .base = trained_bytes(t.after.x),
        .more = {{InputKind::base, trained_bytes(t.after.m)}, {InputKind::base, trained_bytes(t.after.v)}}};
    EXPECT_LT(stored_bits(parameter), 2) << beta2;
  }
}

TEST_F(OptimizerStep, FindsAStepOfMomentum) {
  TrainedStep t = train_step(kChunkElements, {}, 8);
  for (std::size_t i = 0; i < t.before.x.size(); ++i) t.after.x[i] = t.before.x[i] * 0.9999F - 0.01F * t.after.m[i];
  const TestChunk chunk{.dtype = DType::f32,
                        .data = trained_bytes(t.after.x),
                        .base = trained_bytes(t.before.x),
                        .more = {{InputKind::peer, trained_bytes(t.after.m)}}};
  EXPECT_LT(stored_bits(chunk), 0.1);
  const TestChunk back{.dtype = DType::f32,
                       .data = trained_bytes(t.before.x),
                       .base = trained_bytes(t.after.x),
                       .more = {{InputKind::base, trained_bytes(t.after.m)}}};
  EXPECT_LT(stored_bits(back), 2);
}

// For example, one buffer with decayed and undecayed parameters.
TEST_F(OptimizerStep, FindsTheStepDespiteAFewOtherElements) {
  TrainedStep t = train_step(kChunkElements, {}, 9);
  const TrainedStep other = train_step(kChunkElements, {.rate = 2e-3, .decay = 0}, 10);
  for (std::size_t i = 200'000; i < 230'000; ++i) {
    t.before.x[i] = other.before.x[i];
    t.after.x[i] = other.after.x[i];
    t.after.m[i] = other.after.m[i];
    t.after.v[i] = other.after.v[i];
  }
  const StepConstants found = constants_of(parameter_chunk(t));
  EXPECT_NEAR(found.keep, 1 - 6e-5, 1e-7);
  EXPECT_NEAR(found.step, 6e-4, 1e-9);
  EXPECT_LT(stored_bits(parameter_chunk(t)), 6);
}

TEST_F(OptimizerStep, RefusesStatesThatAreFurtherApart) {
  const TrainedStep one = train_step(40'000, {}, 11);
  const TrainedStep other = train_step(40'000, {}, 12);
  TestChunk chunk = second_moment_chunk(one);
  chunk.base = trained_bytes(other.before.v);
  chunk.more[0].bytes = trained_bytes(other.before.m);
  const TestSurroundings surroundings(chunk);
  const auto estimate =
      optimizer_step_encoder().analyze(chunk.data, surroundings.context(), 4 * chunk.elements(), scratch_);
  ASSERT_TRUE(estimate);
  EXPECT_FALSE(estimate->has_value());
}

// Random changes of a few bits: ordinal_delta is as small, and needs fewer inputs.
TEST_F(OptimizerStep, RefusesChangesThatNoStepExplains) {
  TestChunk chunk = parameter_chunk(train_step(40'000, {}, 18));
  chunk.data = chunk.base;
  const auto estimate_of = [&] {
    const TestSurroundings surroundings(chunk);
    return optimizer_step_encoder().analyze(chunk.data, surroundings.context(), chunk.elements(), scratch_).value();
  };
  EXPECT_FALSE(estimate_of()) << "unchanged";
  for (std::size_t i = 0; i < chunk.data.size(); i += 80) chunk.data[i] ^= std::byte{0x55};
  EXPECT_FALSE(estimate_of()) << "changed by a pattern";
  chunk = parameter_chunk(train_step(40'000, {}, 18));
  EXPECT_TRUE(estimate_of());
}

// At every place: zeros, infinities, NaNs and subnormal numbers.
TEST_F(OptimizerStep, RestoresSpecialNumbers) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float specials[] = {0.0F,
                            -0.0F,
                            kInf,
                            -kInf,
                            std::numeric_limits<float>::quiet_NaN(),
                            std::bit_cast<float>(0xff812345U),
                            std::numeric_limits<float>::denorm_min(),
                            std::numeric_limits<float>::max(),
                            -1.0F};
  TrainedStep t = train_step(70'000, {}, 13);
  TestRandom random(14);
  for (Floats* floats : {&t.before.x, &t.before.m, &t.before.v, &t.after.x, &t.after.m, &t.after.v}) {
    for (int i = 0; i < 700; ++i) (*floats)[random.below(floats->size())] = specials[random.below(std::size(specials))];
  }
  EXPECT_LT(stored_bits(second_moment_chunk(t)), 8);
  EXPECT_LT(stored_bits(parameter_chunk(t)), 8);
  for (const float special : specials) {
    TrainedStep same = train_step(300, {}, 15);
    for (Floats* floats : {&same.before.x, &same.before.m, &same.before.v, &same.after.m, &same.after.v})
      floats->assign(300, special);
    stored_bits(second_moment_chunk(same));
    stored_bits(parameter_chunk(same));
  }
}

TEST_F(OptimizerStep, DoesNotDependOnTheFloatMode) {
  TrainedStep t = train_step(20'000, {}, 16);
  for (std::size_t i = 0; i < t.before.v.size(); i += 2) {
    for (Floats* floats : {&t.before.x, &t.after.x, &t.before.m, &t.after.m}) (*floats)[i] *= 0x1p-130F;
    for (Floats* floats : {&t.before.v, &t.after.v}) (*floats)[i] *= 0x1p-110F;
  }
  expect_same_in_every_float_mode(second_moment_chunk(t));
  expect_same_in_every_float_mode(parameter_chunk(t));
}

TEST_F(OptimizerStep, PredictsByTheFormulasOfItsSpec) {
  const Floats base = {2.0F, 1.0F, std::numeric_limits<float>::quiet_NaN()};
  const Floats first = {0.5F, 0.0F, 1.0F};
  const Floats second = {1.0F, 4.0F, 1.0F};
  const std::vector<std::byte> bytes[] = {trained_bytes(base), trained_bytes(first), trained_bytes(second)};
  const auto predicted = [&](StepForm form, std::initializer_list<InputKind> kinds, const StepConstants& constants) {
    std::vector<Input> inputs;
    for (const InputKind kind : kinds) inputs.push_back({kind, DType::f32, bytes[inputs.size()]});
    EXPECT_TRUE(takes_inputs(form, DType::f32, inputs));
    std::vector<std::byte> out(bytes[0].size());
    predict_step(form, inputs, constants, out);
    return floats_in(out);
  };
  at_every_level([&] {
    // (1 - 0.5) / 0.5 + 0.5 = 1.5; 2 * 0.75 + 0.25 * 1.5 * 1.5
    Floats found =
        predicted(StepForm::second_moment, {InputKind::base, InputKind::base, InputKind::peer}, {0.75F, 0.25F, 0.5F});
    EXPECT_EQ(found[0], 2.0625F);
    EXPECT_EQ(found[1], 16.75F);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(found[2]), std::bit_cast<std::uint32_t>(base[2]));
    // 2 * 0.5 - 0.25 * 0.5 / (1 + 1)
    found = predicted(StepForm::adam, {InputKind::base, InputKind::peer, InputKind::peer}, {0.5F, 0.25F, 1.0F});
    EXPECT_EQ(found[0], 0.9375F);
    EXPECT_EQ(found[1], 0.5F);
    found = predicted(StepForm::momentum, {InputKind::base, InputKind::peer}, {0.5F, 0.25F, 0});
    EXPECT_EQ(found[0], 0.875F);
  });
}

TEST_F(OptimizerStep, PredictsBf16ByTheFormulasOfItsSpec) {
  constexpr std::uint16_t kNan = 0x7FFF;
  const auto predicted = [&](StepForm form, std::initializer_list<InputKind> kinds, const StepConstants& constants,
                             std::initializer_list<std::initializer_list<std::uint64_t>> elements) {
    std::vector<std::vector<std::byte>> bytes;
    for (const auto& of_input : elements) bytes.push_back(elements_of(DType::bf16, of_input));
    std::vector<Input> inputs;
    for (const InputKind kind : kinds) inputs.push_back({kind, DType::bf16, bytes[inputs.size()]});
    EXPECT_TRUE(takes_inputs(form, DType::bf16, inputs));
    std::vector<std::byte> out(bytes[0].size());
    predict_step(form, inputs, constants, out);
    std::vector<std::uint16_t> found;
    for (std::size_t i = 0; i < out.size(); i += 2) found.push_back(load_le<std::uint16_t>(out.data() + i));
    return found;
  };
  using Found = std::vector<std::uint16_t>;
  at_every_level([&] {
    const StepConstants squares{.keep = 0.75F, .step = 0.25F, .other = 0.5F};
    const std::initializer_list<std::initializer_list<std::uint64_t>> moments = {
        {0x3F83, 0x3F83, kNan}, {0x3F81, 0x3F80, 0x3F80}, {0x3FC3, 0x3F91, 0x3F80}};
    const auto kinds = {InputKind::base, InputKind::base, InputKind::peer};
    // g is 2.0390625 and becomes 2.03125; otherwise the first element would be 0x3FE7. The second one would be between
    // two BF16 numbers before something is added: 1.0234375 * 0.75 = 0.767578125 becomes 0.765625.
    EXPECT_EQ(predicted(StepForm::second_moment, kinds, squares, moments), (Found{0x3FE6, 0x3F96, kNan}));
    EXPECT_EQ(predicted(StepForm::rounded_second_moment, kinds, squares, moments), (Found{0x3FE6, 0x3F95, kNan}));
    // The root of 2 becomes 1.4140625; divided by 0.75 it is 1.8854, which becomes 1.8828125; 1.890625 is the divisor.
    const StepConstants adam{.keep = 1, .step = 1.5F, .other = 0x1p-7F, .divisor = 0.75F};
    const auto peers = {InputKind::base, InputKind::peer, InputKind::peer};
    EXPECT_EQ(predicted(StepForm::rounded_adam, peers, adam, {{0x4000, kNan}, {0x3F80, 0}, {0x4000, 0}}),
              (Found{0x3F9A, kNan}));
    // 2 * 0.99 = 1.98 becomes 1.9765625. Otherwise, 1.98 - 0.7934 = 1.1866 would become 0x3F98.
    EXPECT_EQ(predicted(StepForm::rounded_adam, peers, {0.99F, 1.5F, 0x1p-7F, 0.75F}, {{0x4000}, {0x3F80}, {0x4000}}),
              Found{0x3F97});
    // 2 - 1 / (1 + 0.01) = 1.0099 becomes 1.0078125.
    EXPECT_EQ(predicted(StepForm::adam, peers, {.keep = 1, .step = 1, .other = 0.01F}, {{0x4000}, {0x3F80}, {0x3F80}}),
              Found{0x3F81});
    // 1 - 0.25 * 1.0234375 = 0.744140625 is between two BF16 numbers and becomes the even one.
    EXPECT_EQ(predicted(StepForm::momentum, {InputKind::base, InputKind::peer}, {.keep = 1, .step = 0.25F},
                        {{0x3F80}, {0x3F83}}),
              Found{0x3F3E});
  });
}

TEST_F(OptimizerStep, FindsTheBetasOfRoundedMoments) {
  for (const double beta1 : {0.9, 0.95, 0.8}) {
    for (const double beta2 : {0.95, 0.98, 0.99, 0.999}) {
      for (const bool fused : {false, true}) {
        SCOPED_TRACE(std::to_string(beta1) + " " + std::to_string(beta2) + (fused ? " fused" : ""));
        const StepConstants found = constants_of(
            as_bf16(second_moment_chunk(train_rounded_step(100'000, {.beta1 = beta1, .beta2 = beta2}, 7, fused))));
        EXPECT_EQ(found.keep, static_cast<float>(beta2));
        EXPECT_EQ(found.step, static_cast<float>(1 - beta2));
        EXPECT_EQ(found.other, static_cast<float>(1 - beta1));
      }
    }
  }
}

TEST_F(OptimizerStep, StoresLittleForRoundedMoments) {
  const auto bits = [&](const Hyperparameters& h, bool fused = false) {
    return stored_bits(as_bf16(second_moment_chunk(train_rounded_step(kChunkElements, h, 1, fused))));
  };
  EXPECT_LT(bits({.beta2 = 0.95}), 0.7);
  EXPECT_LT(bits({.beta2 = 0.95}, true), 0.7);
  EXPECT_LT(bits({.beta2 = 0.999}), 0.4);
  EXPECT_LT(bits({.beta2 = 0.999}, true), 0.4);
  // Unusual hyperparameters.
  EXPECT_LT(bits({.beta1 = 0.912345, .beta2 = 0.9765432}), 1.2);
}

TEST_F(OptimizerStep, StoresAlmostNothingForRoundedParameters) {
  const auto bits = [&](const Hyperparameters& h, bool fused = false) {
    return stored_bits(as_bf16(parameter_chunk(train_rounded_step(kChunkElements, h, 4, fused))));
  };
  EXPECT_LT(bits({}), 0.02);
  EXPECT_LT(bits({}, true), 0.1);
  // Few elements move.
  EXPECT_LT(bits({.rate = 1e-6, .decay = 0}), 0.02);
  EXPECT_LT(bits({.epsilon = 1e-4}), 0.2);
  EXPECT_LT(bits({.bias1 = 0.19, .bias2 = 0.0975}), 0.3);
  // The decay moves elements, too.
  EXPECT_LT(bits({.rate = 0.01, .decay = 1}), 0.3);
}

TEST_F(OptimizerStep, StoresLittleForOneRoundedStepBack) {
  for (const double beta2 : {0.95, 0.999}) {
    const TrainedStep t = train_rounded_step(kChunkElements, {.beta2 = beta2}, 14);
    const TestChunk moment{
        .dtype = DType::bf16,
        .data = bf16_bytes(t.before.v),
        .base = bf16_bytes(t.after.v),
        .more = {{InputKind::base, bf16_bytes(t.after.m)}, {InputKind::peer, bf16_bytes(t.before.m)}}};
    EXPECT_LT(stored_bits(moment), 2) << beta2;
    const TestChunk parameter{
        .dtype = DType::bf16,
        .data = bf16_bytes(t.before.x),
        .base = bf16_bytes(t.after.x),
        .more = {{InputKind::base, bf16_bytes(t.after.m)}, {InputKind::base, bf16_bytes(t.after.v)}}};
    EXPECT_LT(stored_bits(parameter), 0.2) << beta2;
  }
}

TEST_F(OptimizerStep, FindsARoundedStepOfMomentum) {
  TrainedStep t = train_rounded_step(kChunkElements, {}, 8);
  for (std::size_t i = 0; i < t.before.x.size(); ++i) t.after.x[i] = t.before.x[i] - 0.01F * t.after.m[i];
  t.after = rounded_state(t.after);
  const TestChunk chunk{.dtype = DType::bf16,
                        .data = bf16_bytes(t.after.x),
                        .base = bf16_bytes(t.before.x),
                        .more = {{InputKind::peer, bf16_bytes(t.after.m)}}};
  EXPECT_LT(stored_bits(chunk), 0.02);
}

TEST_F(OptimizerStep, RestoresSpecialBf16Numbers) {
  const std::uint16_t specials[] = {0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0xFF81, 0x7FFF, 1, 0x7F7F, 0xBF80};
  const TrainedStep t = train_rounded_step(70'000, {}, 13);
  TestRandom random(14);
  for (TestChunk chunk : {as_bf16(second_moment_chunk(t)), as_bf16(parameter_chunk(t))}) {
    for (std::vector<std::byte>* bytes : {&chunk.data, &chunk.base, &chunk.more[0].bytes, &chunk.more[1].bytes}) {
      for (int i = 0; i < 700; ++i) {
        const std::uint16_t special = specials[random.below(std::size(specials))];
        std::memcpy(bytes->data() + 2 * random.below(bytes->size() / 2), &special, 2);
      }
    }
    EXPECT_LT(stored_bits(chunk), 3);
    expect_same_in_every_float_mode(chunk);
    for (const std::uint16_t special : specials) {
      for (std::vector<std::byte>* bytes : {&chunk.base, &chunk.more[0].bytes, &chunk.more[1].bytes}) {
        for (std::size_t i = 0; i < bytes->size(); i += 2) std::memcpy(bytes->data() + i, &special, 2);
      }
      stored_bits(chunk);
    }
  }
}

TEST_F(OptimizerStep, RefusesRoundedStatesThatAreFurtherApart) {
  const TrainedStep one = train_rounded_step(40'000, {}, 11);
  const TrainedStep other = train_rounded_step(40'000, {}, 12);
  TestChunk chunk = as_bf16(second_moment_chunk(one));
  chunk.base = bf16_bytes(other.before.v);
  chunk.more[0].bytes = bf16_bytes(other.before.m);
  const TestSurroundings surroundings(chunk);
  const auto estimate =
      optimizer_step_encoder().analyze(chunk.data, surroundings.context(), 4 * chunk.elements(), scratch_);
  ASSERT_TRUE(estimate);
  EXPECT_FALSE(estimate->has_value());
}

TEST_F(OptimizerStep, DecodesTheExamplesOfItsSpec) {
  const auto bf16 = [](std::uint64_t element) { return elements_of(DType::bf16, {element}); };
  const TestChunk moment{.dtype = DType::bf16,
                         .data = bf16(0x3F95),
                         .base = bf16(0x3F83),
                         .more = {{InputKind::base, bf16(0x3F80)}, {InputKind::peer, bf16(0x3F91)}}};
  const TestChunk parameter{.dtype = DType::bf16,
                            .data = bf16(0x3F9A),
                            .base = bf16(0x4000),
                            .more = {{InputKind::peer, bf16(0x3F80)}, {InputKind::peer, bf16(0x4000)}}};
  at_every_level([&] {
    for (const auto& [payload, chunk] :
         {std::pair("03 0000403F 0000803E 0000003F 01 7F 01 00000000 00000000", moment),
          std::pair("04 0000803F 0000C03F 0000003C 0000403F 01 7F 01 00000000 00000000", parameter)}) {
      const auto decoded = decode_test_chunk(optimizer_step_decoder(), hex_bytes(payload), chunk, scratch_);
      ASSERT_TRUE(decoded) << decoded.error().message();
      EXPECT_EQ(*decoded, chunk.data);
    }
  });
  expect_refused("04 0000803F 0000C03F 0000003C 000040", parameter, "", ErrorKind::truncated);
}

TEST_F(OptimizerStep, RefusesFormsOfOtherInputs) {
  const TestChunk chunk = parameter_chunk(train_step(300, {}, 17));
  auto payload = encode_test_chunk(optimizer_step_encoder(), chunk, scratch_);
  ASSERT_TRUE(payload);
  for (const unsigned form : {0U, 2U, 3U, 255U}) {
    (*payload)[0] = static_cast<std::byte>(form);
    const auto decoded = decode_test_chunk(optimizer_step_decoder(), *payload, chunk, scratch_);
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.error().kind(), ErrorKind::corrupt);
  }
  // F32 has no rounded forms, and takes no inputs of BF16.
  for (const StepForm form : {StepForm::rounded_adam, StepForm::rounded_second_moment}) {
    for (const DType dtype : {DType::f32, DType::f16}) {
      const Input base{InputKind::base, dtype, {}};
      const Input peer{InputKind::peer, dtype, {}};
      EXPECT_FALSE(takes_inputs(form, dtype, std::array{base, peer, peer}));
      EXPECT_FALSE(takes_inputs(form, dtype, std::array{base, base, peer}));
    }
  }
  const Input base{InputKind::base, DType::bf16, {}};
  const Input peer{InputKind::peer, DType::f32, {}};
  EXPECT_FALSE(takes_inputs(StepForm::adam, DType::bf16, std::array{base, peer, peer}));
}

}  // namespace
}  // namespace bitsnap::codec
