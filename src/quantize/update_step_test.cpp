// The quantizer update_step: its bounds, held in extended precision against what it made of floats of every kind, what
// it keeps, and that the codec scaled_by finds every multiple.
#include "quantize/update_step.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include <bitsnap/cpu.hpp>
#include <bitsnap/tensor.hpp>

#include "codec/builtin_codecs.hpp"
#include "codec/optimizer_step/trained_step_testing.hpp"
#include "codec/trained_like_testing.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wdouble-promotion"  // what is exact is wider than what it is held against
#endif

namespace bitsnap::quantize {
namespace {

using codec::Floats;
using codec::TestRandom;
using Exact = long double;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr UpdateStepParameters kUsual{
    .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .step_count = 300, .update_step = 0.02};

std::uint32_t bits_of(float number) { return std::bit_cast<std::uint32_t>(number); }

UpdateStep usual(UpdateStepParameters parameters = kUsual) {
  auto made = UpdateStep::of(parameters);
  if (!made) ADD_FAILURE() << made.error().message();
  return *made;
}

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

// Of what Adam makes an update, without any rounding.
struct Corrected {
  explicit Corrected(const UpdateStepParameters& from, std::uint64_t later = 0)
      : epsilon(from.epsilon),
        first(1 - std::pow(Exact{from.beta1}, static_cast<Exact>(from.step_count + later))),
        second(1 - std::pow(Exact{from.beta2}, static_cast<Exact>(from.step_count + later))) {}

  [[nodiscard]] Exact update(Exact moment, Exact square) const {
    return moment / first / (std::sqrt(square / second) + epsilon);
  }
  // What is as long as so much of an update.
  [[nodiscard]] Exact moment(Exact update, Exact square) const {
    return update * first * (std::sqrt(square / second) + epsilon);
  }

  Exact epsilon, first, second;
};

// Floats of every magnitude, and what is none.
rc::Gen<float> any_float() {
  const auto any_bits =
      rc::gen::map(rc::gen::inRange<std::uint64_t>(0, std::uint64_t{1} << 32),
                   [](std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); });
  const auto special = rc::gen::element(0.0F, -0.0F, kInfinity, -kInfinity, kNaN, 0x1p-149F, -0x1p-149F, 0x1p-126F,
                                        std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest());
  return rc::gen::weightedOneOf<float>({{9, any_bits}, {1, special}});
}

rc::Gen<double> beta() {
  return rc::gen::weightedOneOf<double>(
      {{4, rc::gen::element(0.9, 0.95, 0.98, 0.99, 0.999, 0.9999)},
       {1, rc::gen::map(rc::gen::inRange(0, 1'000'000), [](int part) { return part / 1e6; })}});
}

rc::Gen<UpdateStepParameters> any_parameters() {
  return rc::gen::build<UpdateStepParameters>(
      rc::gen::set(&UpdateStepParameters::beta1, beta()), rc::gen::set(&UpdateStepParameters::beta2, beta()),
      rc::gen::set(&UpdateStepParameters::epsilon, rc::gen::element(0.0, 1e-8, 1e-5, 1e-15, 1e-37, 1.0)),
      rc::gen::set(&UpdateStepParameters::step_count,
                   rc::gen::weightedOneOf<std::uint64_t>({{1, rc::gen::element<std::uint64_t>(1, 2, 3)},
                                                          {1, rc::gen::inRange<std::uint64_t>(1, 100'000)}})),
      rc::gen::set(&UpdateStepParameters::update_step, rc::gen::element(0.02, 1.0, 0.005, 1e-4, 1.0 / 3)));
}

// Moments near their squares, as trained ones are, and any others.
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

// How many elements the codec stores as they are.
std::size_t exceptions_of(const Floats& moments, const Floats& squares, const UpdateStep& step) {
  Scratch scratch;
  // Zeros behind them, so that a payload is smaller than the chunk whatever there is.
  Floats padded = moments;
  Floats beside = squares;
  padded.resize(8 * moments.size() + 64);
  beside.resize(padded.size());
  const codec::Input input{codec::InputKind::peer, DType::f32, std::as_bytes(std::span(beside))};
  const codec::ChunkContext context{.dtype = DType::f32,
                                    .elements = padded.size(),
                                    .inputs = {&input, 1},
                                    .parameters = {},
                                    .lattice = step.lattice()};
  std::vector<std::byte> out(codec::scaled_by_encoder().max_encoded_size(DType::f32, padded.size()));
  const auto size = codec::scaled_by_encoder().encode(std::as_bytes(std::span(padded)), context, out, scratch);
  if (!size || !*size) {
    ADD_FAILURE() << "not expressed";
    return padded.size();
  }
  return load_le<std::uint32_t>(out.data() + 9);
}

class UpdateStepTest : public testing::Test {
 protected:
  ~UpdateStepTest() override { force_cpu_level(detected_cpu_level()); }
};

TEST_F(UpdateStepTest, StaysWithinItsBoundWhateverTheFloatsAre) {
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
    // All but the kept ones are multiples, and stay what they are.
    RC_ASSERT(exceptions_of(after, squares, *made) <= kept);
    Floats again = after;
    RC_ASSERT(quantize(*made, again, squares).changed == 0U);
    RC_ASSERT(std::memcmp(again.data(), after.data(), 4 * after.size()) == 0);
  }));
}

TEST_F(UpdateStepTest, KeepsNothingThatItCouldRound) {
  EXPECT_TRUE(rc::check("kept only for a reason", [] {
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

TEST_F(UpdateStepTest, KeepsWhatIsNoNumberAndMakesZerosPositive) {
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
  EXPECT_EQ(bits_of(moments[3]), bits_of(1e30F)) << "more steps than there are";
  EXPECT_NE(moments[4], 0.0F);
  EXPECT_EQ(bits_of(moments[5]) | bits_of(moments[6]), 0U) << "less than half a step";
  // Of steps of 2.1e38 two are too many.
  moments = {3.4e38F, 2e38F};
  const UpdateStepParameters wide{.beta1 = 0, .beta2 = 0, .epsilon = 3e38, .step_count = 1, .update_step = 0.7};
  EXPECT_EQ(quantize(usual(wide), moments, {1.0F, 1.0F}).kept_exact(), 1U);
  EXPECT_EQ(bits_of(moments[0]), bits_of(3.4e38F));
  EXPECT_NE(bits_of(moments[1]), bits_of(2e38F));
  // A step that is subnormal.
  moments = {0x1p-140F};
  const UpdateStepParameters narrow{.beta1 = 0, .beta2 = 0, .epsilon = 0, .step_count = 1, .update_step = 1e-20};
  EXPECT_EQ(quantize(usual(narrow), moments, {0x1p-149F}).kept_exact(), 1U);
  EXPECT_EQ(moments[0], 0x1p-140F);
}

TEST_F(UpdateStepTest, MakesTheSameOfAnyPart) {
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
  // And where nothing is aligned.
  std::vector<std::byte> odd(2 * moments.size() + 1);
  std::memcpy(odd.data() + 1, state.m.data(), moments.size());
  std::memcpy(odd.data() + 1 + moments.size(), state.v.data(), moments.size());
  const ByteSpan all = ByteSpan(odd).subspan(1);
  ASSERT_TRUE(quantize_bytes(usual(), all.first(moments.size()), all.subspan(moments.size())));
  EXPECT_EQ(std::memcmp(all.data(), whole.data(), moments.size()), 0);
}

// What a thread of torch has after set_flush_denormal(True), and one that rounds towards zero.
TEST_F(UpdateStepTest, MakesTheSameAtEveryCpuLevelAndInEveryModeOfTheProcessor) {
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
  for (const CpuLevel level : kCpuLevels) {
    if (!has_cpu_level(level)) continue;
    ASSERT_TRUE(force_cpu_level(level));
    for (const bool flushed : {false, true}) {
      Floats after = before;
#if defined(__x86_64__)
      const unsigned mode = _mm_getcsr();
      if (flushed) _mm_setcsr(mode | 0xe040);
#endif
      const auto made = UpdateStep::of(kUsual);
      const auto done =
          quantize_bytes(*made, std::as_writable_bytes(std::span(after)), std::as_bytes(std::span(squares)));
#if defined(__x86_64__)
      EXPECT_EQ(_mm_getcsr() & 0xe040, flushed ? 0xe040U : mode & 0xe040U) << "the caller's mode was not given back";
      _mm_setcsr(mode);
#endif
      ASSERT_TRUE(done);
      if (!expected) expected = after;
      EXPECT_EQ(std::memcmp(after.data(), expected->data(), 4 * after.size()), 0) << cpu_level_name(level) << flushed;
    }
  }
}

// Adam, without any rounding.
struct Trajectory {
  const UpdateStepParameters& parameters;
  Exact moment, square;
  std::uint64_t later = 0;

  // The update that a gradient makes.
  Exact take(Exact gradient) {
    moment = parameters.beta1 * moment + (1 - Exact{parameters.beta1}) * gradient;
    square = parameters.beta2 * square + (1 - Exact{parameters.beta2}) * gradient * gradient;
    return Corrected(parameters, ++later).update(moment, square);
  }
};

TEST_F(UpdateStepTest, BoundsTheNextUpdateWithTheErrorOfTheSecondMoment) {
  EXPECT_TRUE(rc::check("|u+' - u+| <= next_bound", [] {
    const UpdateStepParameters parameters = *any_parameters();
    RC_PRE(parameters.beta2 > 0);
    const UpdateStep step = usual(parameters);
    const Corrected corrected(parameters);
    for (const double error : {0.0, 1.0 / 256, 1.0 / 16, 0.25, 0.5}) {
      const auto part = [](Exact from, Exact to) { return from + (to - from) * *rc::gen::inRange(0, 1001) / 1000; };
      const Exact stored = std::pow(10.0L, part(-20, 4));
      const Exact exact = stored / (1 + part(-error, error));
      const Exact update = part(-2, 2);
      const Exact moment = corrected.moment(update, stored);
      const Exact off =
          corrected.moment(static_cast<Exact>(step.bound(static_cast<double>(update))) * part(-1, 1), stored);
      Trajectory own{parameters, moment, exact};
      Trajectory other{parameters, moment + off, stored};
      const Exact gradient = std::sqrt(exact) * (*rc::gen::inRange(0, 3) == 0 ? 0 : part(-5, 5));
      const Exact next = own.take(gradient);
      const Exact difference = std::abs(other.take(gradient) - next);
      const auto largest = static_cast<double>(std::max(std::abs(update), std::abs(next)));
      RC_ASSERT(difference <= step.next_bound(largest, error) * (1 + 1e-9L));
    }
  }));
}

TEST_F(UpdateStepTest, BoundsAllLaterUpdatesTogether) {
  for (const UpdateStepParameters& parameters :
       {kUsual, UpdateStepParameters{0.9, 0.999, 1e-8, 5, 0.02}, UpdateStepParameters{0.9, 0.95, 0, 1, 0.02},
        UpdateStepParameters{0.95, 0.98, 1e-8, 40, 0.01}, UpdateStepParameters{0, 0.9, 1e-8, 40, 0.01}}) {
    const UpdateStep step = usual(parameters);
    const Corrected corrected(parameters);
    TestRandom random(4);
    Exact largest_part = 0;
    for (int round = 0; round < 100; ++round) {
      const Exact square = 1e-6L;
      const Exact moment = corrected.moment(random.normal() / 3, square);
      const Exact off = corrected.moment(static_cast<Exact>(step.bound(1)), square);
      // Of no gradients at all, of gradients here and there, and of many.
      const std::uint64_t rare = round % 4 == 0 ? 1'000'000U : static_cast<unsigned>(1 + round % 7);
      Trajectory own{parameters, moment, square};
      Trajectory other{parameters, moment + off, square};
      Exact sum = 0;
      for (int k = 0; k < 400; ++k) {
        const Exact gradient = random.below(rare) == 0 && rare < 1'000'000 ? random.normal() * 1e-3L : 0.0L;
        const Exact update = own.take(gradient);
        sum += std::abs(other.take(gradient) - update);
      }
      EXPECT_LE(sum, step.cumulative_bound(1, 0));
      largest_part = std::max(largest_part, sum / step.cumulative_bound(1, 0));
    }
    // Without any gradient, and with an epsilon that does not count, it is what comes to pass.
    if (parameters.beta1 > 0) {
      EXPECT_GT(largest_part, 0.9);
    }
  }
}

TEST_F(UpdateStepTest, BoundsWhatAnErrorOfTheSecondMomentAddsUpToWhereItDoesNotFall) {
  const UpdateStep step = usual();
  const Corrected corrected(kUsual);
  TestRandom random(5);
  for (const double error : {1.0 / 16, 0.25}) {
    for (const int sign : {-1, 1}) {
      const Exact stored = 1e-6L;
      const Exact exact = stored / (1 + sign * error);
      Trajectory own{kUsual, corrected.moment(0.3L, stored), exact};
      Trajectory other{kUsual, own.moment, stored};
      Exact sum = 0;
      Exact largest = 0.3L;
      for (int k = 0; k < 500; ++k) {
        // Not below what both of them are.
        const Exact gradient = std::sqrt(std::max(own.square, other.square)) * (1 + 0.1L * random.below(2));
        const Exact update = own.take(gradient);
        largest = std::max(largest, update);
        sum += std::abs(other.take(gradient) - update);
      }
      const double bound = step.cumulative_bound(static_cast<double>(largest), error);
      EXPECT_LE(sum, bound);
      EXPECT_GT(sum, bound / 10);
    }
  }
}

TEST_F(UpdateStepTest, KnowsHowLargeUpdatesCanBe) {
  for (const UpdateStepParameters& parameters :
       {UpdateStepParameters{0.9, 0.95, 1e-8, 1, 0.02}, UpdateStepParameters{0.9, 0.95, 1e-8, 30, 0.02},
        UpdateStepParameters{0.9, 0.999, 1e-8, 200, 0.02}, UpdateStepParameters{0, 0.5, 0, 7, 0.02},
        UpdateStepParameters{0.99, 0.95, 1e-8, 30, 0.02}, UpdateStepParameters{0.5, 0.25, 1e-8, 9, 0.02}}) {
    const double largest = usual(parameters).largest_update();
    // The gradients that make it so large: those for which the inequality is none.
    Exact moment = 0;
    Exact square = 0;
    TestRandom random(6);
    Exact any_moment = 0;
    Exact any_square = 0;
    for (std::uint64_t i = parameters.step_count; i-- > 0;) {
      const Exact gradient = std::pow(Exact{parameters.beta1} / parameters.beta2, static_cast<Exact>(i));
      moment = parameters.beta1 * moment + (1 - Exact{parameters.beta1}) * gradient;
      square = parameters.beta2 * square + (1 - Exact{parameters.beta2}) * gradient * gradient;
      const Exact other = random.normal() + 1;
      any_moment = parameters.beta1 * any_moment + (1 - Exact{parameters.beta1}) * other;
      any_square = parameters.beta2 * any_square + (1 - Exact{parameters.beta2}) * other * other;
    }
    UpdateStepParameters without = parameters;
    without.epsilon = 0;
    EXPECT_NEAR(static_cast<double>(Corrected(without).update(moment, square)), largest, 1e-9 * largest);
    EXPECT_LE(Corrected(without).update(any_moment, any_square), largest * (1 + 1e-9));
  }
  EXPECT_EQ(usual({0.99, 0.95, 1e-8, 30, 0.02}).largest_update(UpdateStep::kEver), HUGE_VAL);
  EXPECT_EQ(usual({0.5, 0.25, 1e-8, 30, 0.02}).largest_update(UpdateStep::kEver), HUGE_VAL);
  EXPECT_EQ(usual({0.9, 0, 1e-8, 30, 0.02}).largest_update(), HUGE_VAL);
  EXPECT_EQ(usual({0.9, 0, 1e-8, 1, 0.02}).largest_update(), 1);
  EXPECT_EQ(usual({0, 0, 1e-8, 30, 0.02}).largest_update(), 1);
  for (const auto& [beta1, beta2] : {std::pair(0.9, 0.95), std::pair(0.9, 0.999), std::pair(0.9, 0.8)}) {
    double before = 0;
    for (const std::uint64_t steps : {1UL, 2UL, 3UL, 10UL, 100UL, 1000UL, 100'000UL, UpdateStep::kEver}) {
      const double largest = usual({beta1, beta2, 1e-8, steps, 0.02}).largest_update();
      EXPECT_GE(largest, before * (1 - 1e-12));
      before = largest;
    }
  }
}

TEST_F(UpdateStepTest, SaysWhereThereIsNoBound) {
  EXPECT_EQ(usual().next_bound(0, 1), HUGE_VAL);
  EXPECT_EQ(usual().cumulative_bound(0, 1), HUGE_VAL);
  EXPECT_EQ(usual({0.9, 0, 1e-8, 30, 0.02}).next_bound(1, 0), HUGE_VAL);
  EXPECT_EQ(usual({0.99, 0.95, 1e-8, 30, 0.02}).cumulative_bound(1, 0), HUGE_VAL);
  EXPECT_LT(usual({0.99, 0.95, 1e-8, 30, 0.02}).next_bound(1, 0), 1);
  // Nothing is left of moments that are the gradient and its square.
  EXPECT_EQ(usual({0, 0, 1e-8, 30, 0.02}).next_bound(1, 0.1), 0);
  EXPECT_EQ(usual({0, 0, 1e-8, 30, 0.02}).cumulative_bound(1, 0.1), 0);
}

TEST_F(UpdateStepTest, RefusesParametersThatNoAdamHas) {
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
  refused(parameters, "count of steps");
  EXPECT_TRUE(UpdateStep::of({.beta1 = 0, .beta2 = 0, .epsilon = 0, .step_count = 1, .update_step = 1}));
}

TEST_F(UpdateStepTest, RefusesSecondMomentsOfAnotherSize) {
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

TEST_F(UpdateStepTest, HasTheStepThatItsSpecificationSays) {
  // 1 - 0.5^2 is 0.75 of the first moment, 1 - 0.75^1 ... of the second: all of them are told exactly.
  const UpdateStep step = usual({.beta1 = 0.5, .beta2 = 0.75, .epsilon = 0.25, .step_count = 1, .update_step = 0.125});
  EXPECT_EQ(step.lattice().a, 0.125F);     // 0.125 * 0.5 / sqrt(0.25)
  EXPECT_EQ(step.lattice().b, 0.015625F);  // 0.125 * 0.5 * 0.25
  Floats moments = {1.0F, -0.3F, 0.2F};
  EXPECT_EQ(quantize(step, moments, {4.0F, 4.0F, 4.0F}).changed, 3U);
  EXPECT_EQ(moments, (Floats{1.0625F, -0.265625F, 0.265625F}));  // 4, -1 and 1 times 0.265625
}

}  // namespace
}  // namespace bitsnap::quantize
