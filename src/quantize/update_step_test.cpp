// Tests of the quantizer update_step: the error of an update in extended precision for floats of every kind, which
// elements are kept, and that the codec scaled_by recognizes every multiple. The bounds of later updates are tested in
// update_step_bounds_test.cpp.
#include "quantize/update_step_testing.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <bitsnap/tensor.hpp>

#include "codec/builtin_codecs.hpp"
#include "codec/optimizer_step/trained_step_testing.hpp"
#include "codec/trained_like_testing.hpp"
#include "quantize/quantize_testing.hpp"

namespace bitsnap::quantize {
namespace {

using codec::Floats;
using codec::TestRandom;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
std::uint32_t bits_of(float number) { return std::bit_cast<std::uint32_t>(number); }

Result<void> quantize_bytes(const Quantizer& step, ByteSpan moments, ConstByteSpan squares,
                            ErrorTally* tally = nullptr) {
  const Beside beside{.dtype = DType::f32, .bytes = squares};
  return step.quantize(DType::f32, moments, {&beside, 1}, tally);
}

ErrorTally quantize(const UpdateStep& step, Floats& moments, const Floats& squares) {
  ErrorTally tally;
  const auto done =
      quantize_bytes(step, std::as_writable_bytes(std::span(moments)), std::as_bytes(std::span(squares)), &tally);
  if (!done) ADD_FAILURE() << done.error().message();
  return tally;
}

// Floats of every magnitude, infinities and NaNs.
rc::Gen<float> any_float() {
  const auto any_bits =
      rc::gen::map(rc::gen::inRange<std::uint64_t>(0, std::uint64_t{1} << 32),
                   [](std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); });
  const auto special = rc::gen::element(0.0F, -0.0F, kInfinity, -kInfinity, kNaN, 0x1p-149F, -0x1p-149F, 0x1p-126F,
                                        std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest());
  return rc::gen::weightedOneOf<float>({{9, any_bits}, {1, special}});
}

// First moments in proportion to the second, as trained ones are, and arbitrary ones.
struct Moments {
  Floats first;
  Floats second;
};
Moments some_moments(const UpdateStepParameters& parameters, std::size_t count) {
  const Corrected corrected(parameters);
  Moments moments;
  for (std::size_t i = 0; i < count; ++i) {
    const float square = *any_float();
    moments.second.push_back(i % 4 == 0 ? square : std::abs(square));
    const auto update = static_cast<Exact>(*rc::gen::inRange(-1'000'000, 1'000'000)) * (i % 3 == 0 ? 1e-6L : 1e-3L);
    moments.first.push_back(i % 5 == 0
                                ? *any_float()
                                : static_cast<float>(corrected.moment(update, std::abs(Exact{moments.second.back()}))));
  }
  return moments;
}

// How many elements scaled_by stores as exceptions.
std::size_t exceptions_of(const Floats& moments, const Floats& squares, const UpdateStep& step) {
  Scratch scratch;
  // Zeros behind the moments make the payload smaller than the chunk in any case.
  Floats padded = moments;
  Floats beside = squares;
  padded.resize(8 * moments.size() + 64);
  beside.resize(padded.size());
  const codec::Input input{codec::InputKind::peer, DType::f32, std::as_bytes(std::span(beside))};
  const codec::EncodeContext context{
      {.dtype = DType::f32, .elements = padded.size(), .inputs = {&input, 1}}, {}, step.lattice()};
  std::vector<std::byte> out(codec::scaled_by_encoder().max_encoded_size(DType::f32, padded.size()));
  const auto size = codec::scaled_by_encoder().encode(std::as_bytes(std::span(padded)), context, out, scratch);
  if (!size || !*size) {
    ADD_FAILURE() << "scaled_by did not encode the chunk";
    return padded.size();
  }
  return load_le<std::uint32_t>(out.data() + 9);
}

TEST(UpdateStep, StaysWithinItsBoundForAllFloats) {
  EXPECT_TRUE(rc::check("|u' - u| <= bound(u)", [] {
    const UpdateStepParameters parameters = *any_parameters();
    const auto made = UpdateStep::of(parameters);
    RC_ASSERT(made.has_value());
    const auto [before, squares] = some_moments(parameters, 100);
    Floats after = before;
    const ErrorTally tally = quantize(*made, after, squares);
    const Corrected corrected(parameters);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (bits_of(before[i]) == bits_of(after[i])) {
        kept += before[i] != 0 ? 1U : 0U;
        continue;
      }
      RC_ASSERT(std::isfinite(after[i]));
      if (before[i] == 0) {
        RC_ASSERT(bits_of(after[i]) == 0U);
        continue;
      }
      RC_ASSERT(squares[i] > 0);
      const Exact update = corrected.update(before[i], squares[i]);
      const Exact error = std::abs(corrected.update(after[i], squares[i]) - update);
      RC_ASSERT(error <= made->bound(static_cast<double>(update)));
    }
    RC_ASSERT(tally.elements == before.size());
    // All but the kept elements are multiples, and a second pass changes nothing.
    RC_ASSERT(exceptions_of(after, squares, *made) <= kept);
    Floats again = after;
    RC_ASSERT(quantize(*made, again, squares).changed == 0U);
    RC_ASSERT(std::memcmp(again.data(), after.data(), 4 * after.size()) == 0);
  }));
}

TEST(UpdateStep, RoundsEveryElementThatItCan) {
  EXPECT_TRUE(rc::check("every kept element has a reason", [] {
    const UpdateStepParameters parameters = *any_parameters();
    const UpdateStep step = usual(parameters);
    const auto [before, squares] = some_moments(parameters, 100);
    const Corrected corrected(parameters);
    std::vector<std::size_t> reasons;
    std::size_t edges = 0;  // where roundings may decide
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (before[i] == 0) continue;
      if (!std::isfinite(before[i]) || !(squares[i] > 0) || squares[i] == kInfinity) {
        reasons.push_back(i);
        continue;
      }
      const Exact own = corrected.moment(parameters.update_step, squares[i]);
      const Exact steps = std::abs(before[i] / own);
      const Exact multiple = (steps + 0.5L) * own;
      if (own < 0x1.fffffp-127L || steps > 32768) {
        reasons.push_back(i);
      } else if (own < 0x1.00001p-126L || steps > 32767 || multiple > 0x1.ffffp+127L) {
        ++edges;
      }
    }
    Floats after = before;
    static_cast<void>(quantize(step, after, squares));
    for (const std::size_t i : reasons) RC_ASSERT(bits_of(after[i]) == bits_of(before[i]));
    RC_ASSERT(exceptions_of(after, squares, step) <= reasons.size() + edges);
  }));
}

TEST(UpdateStep, KeepsNonFiniteElementsAndMakesZerosPositive) {
  const float specials[] = {kInfinity, -kInfinity, kNaN, std::bit_cast<float>(0xff812345U), 1e30F, -3e-7F, 0x1p-149F};
  for (const float square : {0.0F, -0.0F, kInfinity, -1.0F, kNaN, -kInfinity}) {
    Floats moments(std::begin(specials), std::end(specials));
    const Floats before = moments;
    EXPECT_EQ(quantize(usual(), moments, Floats(moments.size(), square)).changed, 0U);
    EXPECT_EQ(std::memcmp(moments.data(), before.data(), 4 * moments.size()), 0) << "beside " << square;
    Floats zeros = {0.0F, -0.0F};
    EXPECT_EQ(quantize(usual(), zeros, Floats(2, square)).changed, 1U);
    EXPECT_EQ(bits_of(zeros[0]) | bits_of(zeros[1]), 0U);
  }
  Floats moments = {kInfinity, -kInfinity, kNaN, 1e30F, 0.25F, 1e-9F, -1e-9F};
  EXPECT_EQ(quantize(usual(), moments, Floats(moments.size(), 1.0F)).kept_exact(), 4U);
  EXPECT_EQ(bits_of(moments[3]), bits_of(1e30F)) << "beyond 32,767 steps";
  EXPECT_NE(moments[4], 0.0F);
  EXPECT_EQ(bits_of(moments[5]) | bits_of(moments[6]), 0U) << "less than half a step";
  // Two steps of 2.1e38 are infinite.
  moments = {3.4e38F, 2e38F};
  const UpdateStepParameters wide{.beta1 = 0, .beta2 = 0, .epsilon = 3e38, .step_count = 1, .update_step = 0.7};
  EXPECT_EQ(quantize(usual(wide), moments, {1.0F, 1.0F}).kept_exact(), 1U);
  EXPECT_EQ(bits_of(moments[0]), bits_of(3.4e38F));
  EXPECT_NE(bits_of(moments[1]), bits_of(2e38F));
  // A subnormal step.
  moments = {0x1p-140F};
  const UpdateStepParameters narrow{.beta1 = 0, .beta2 = 0, .epsilon = 0, .step_count = 1, .update_step = 1e-20};
  EXPECT_EQ(quantize(usual(narrow), moments, {0x1p-149F}).kept_exact(), 1U);
  EXPECT_EQ(moments[0], 0x1p-140F);
}

TEST(UpdateStep, GivesTheSameResultForAnyPart) {
  const codec::TrainedState state = codec::trained_state(kChunkElements + 1000, 1);
  Floats whole = state.m;
  const ErrorTally tally = quantize(usual(), whole, state.v);
  EXPECT_EQ(tally.elements, whole.size());
  EXPECT_GT(tally.changed, whole.size() - whole.size() / 1000);
  TestRandom random(2);
  Floats parts = state.m;
  const auto moments = std::as_writable_bytes(std::span(parts));
  const auto squares = std::as_bytes(std::span(state.v));
  for (std::size_t first = 0; first < parts.size();) {
    const std::size_t count = std::min<std::size_t>(parts.size() - first, 1 + random.below(9000));
    ASSERT_TRUE(quantize_bytes(usual(), moments.subspan(4 * first, 4 * count), squares.subspan(4 * first, 4 * count)));
    first += count;
  }
  EXPECT_EQ(whole, parts);
  // Also without alignment.
  std::vector<std::byte> odd(2 * moments.size() + 1);
  std::memcpy(odd.data() + 1, state.m.data(), moments.size());
  std::memcpy(odd.data() + 1 + moments.size(), state.v.data(), moments.size());
  const ByteSpan all = ByteSpan(odd).subspan(1);
  ASSERT_TRUE(quantize_bytes(usual(), all.first(moments.size()), all.subspan(moments.size())));
  EXPECT_EQ(std::memcmp(all.data(), whole.data(), moments.size()), 0);
}

TEST(UpdateStep, GivesTheSameResultAtEveryCpuLevelAndFloatMode) {
  TestRandom random(3);
  Floats before;
  Floats squares;
  for (int i = 0; i < 20'001; ++i) {
    squares.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random.below(0x7f900000))));
    const auto update = static_cast<float>(random.normal());
    before.push_back(update * std::sqrt(squares.back()) * (i % 9 == 0 ? 0x1p-60F : 1.0F));
  }
  for (int i = 0; i < 500; ++i)
    before[random.below(before.size())] = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
  std::optional<Floats> expected;
  at_every_level_and_float_mode([&] {
    Floats after = before;
    const UpdateStep step = usual();
    ASSERT_TRUE(quantize_bytes(step, std::as_writable_bytes(std::span(after)), std::as_bytes(std::span(squares))));
    if (!expected) expected = after;
    EXPECT_EQ(std::memcmp(after.data(), expected->data(), 4 * after.size()), 0);
  });
}

TEST(UpdateStep, RejectsParametersOutOfRange) {
  const auto refused = [](const UpdateStepParameters& parameters, std::string_view name) {
    const auto made = UpdateStep::of(parameters);
    ASSERT_FALSE(made) << name;
    EXPECT_EQ(made.error().kind(), ErrorKind::invalid_argument);
    EXPECT_NE(made.error().message().find(name), std::string::npos) << made.error().message();
  };
  for (const double beta : {-0.1, 1.0, 1.5, HUGE_VAL, std::nan("")}) {
    UpdateStepParameters parameters = kUsual;
    parameters.beta1 = beta;
    refused(parameters, "beta1");
    parameters = kUsual;
    parameters.beta2 = beta;
    refused(parameters, "beta2");
  }
  for (const double epsilon : {-1e-8, HUGE_VAL, std::nan(""), 1e300}) {
    UpdateStepParameters parameters = kUsual;
    parameters.epsilon = epsilon;
    refused(parameters, "epsilon");
  }
  for (const double update_step : {0.0, -0.02, 1.01, std::nan(""), 1e-300}) {
    UpdateStepParameters parameters = kUsual;
    parameters.update_step = update_step;
    refused(parameters, "the step");
  }
  UpdateStepParameters parameters = kUsual;
  parameters.step_count = 0;
  refused(parameters, "step count");
  EXPECT_TRUE(UpdateStep::of({.beta1 = 0, .beta2 = 0, .epsilon = 0, .step_count = 1, .update_step = 1}));
}

TEST(UpdateStep, RejectsSecondMomentsOfAnotherSize) {
  Floats moments(8);
  const Floats squares(8);
  const auto bytes = std::as_writable_bytes(std::span(moments));
  const auto beside = std::as_bytes(std::span(squares));
  EXPECT_FALSE(quantize_bytes(usual(), bytes, beside.first(28)));
  EXPECT_FALSE(quantize_bytes(usual(), bytes.first(30), beside.first(30)));
  EXPECT_TRUE(quantize_bytes(usual(), bytes.first(0), beside.first(0)));
  EXPECT_FALSE(usual().quantize(DType::f32, bytes, {}, nullptr));
  const Beside narrow{.dtype = DType::bf16, .bytes = beside};
  EXPECT_FALSE(usual().quantize(DType::f32, bytes, {&narrow, 1}, nullptr));
}

TEST(UpdateStep, MatchesTheExampleOfTheSpecification) {
  // The corrections 1 - 0.5 and 1 - 0.75 and all products are exact.
  const UpdateStep step = usual({.beta1 = 0.5, .beta2 = 0.75, .epsilon = 0.25, .step_count = 1, .update_step = 0.125});
  EXPECT_EQ(step.lattice().a, 0.125F);     // 0.125 * 0.5 / sqrt(0.25)
  EXPECT_EQ(step.lattice().b, 0.015625F);  // 0.125 * 0.5 * 0.25
  Floats moments = {1.0F, -0.3F, 0.2F};
  EXPECT_EQ(quantize(step, moments, {4.0F, 4.0F, 4.0F}).changed, 3U);
  EXPECT_EQ(moments, (Floats{1.0625F, -0.265625F, 0.265625F}));  // 4, -1 and 1 times 0.265625
}

}  // namespace
}  // namespace bitsnap::quantize
