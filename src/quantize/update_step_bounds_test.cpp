// Tests of the bounds that update_step promises for the next and all later updates, computed in extended precision.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "codec/trained_like_testing.hpp"
#include "quantize/update_step_testing.hpp"

namespace bitsnap::quantize {
namespace {

using codec::TestRandom;

// Moments and updates of Adam step by step, without rounding.
struct Trajectory {
  const UpdateStepParameters& parameters;
  Exact moment, square;
  std::uint64_t later = 0;

  // The update for one more gradient.
  Exact take(Exact gradient) {
    moment = parameters.beta1 * moment + (1 - Exact{parameters.beta1}) * gradient;
    square = parameters.beta2 * square + (1 - Exact{parameters.beta2}) * gradient * gradient;
    return Corrected(parameters, ++later).update(moment, square);
  }
};

TEST(UpdateStepBounds, BoundsTheNextUpdateWithTheErrorOfTheSecondMoment) {
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

TEST(UpdateStepBounds, BoundsAllLaterUpdatesTogether) {
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
      // No gradients at all, rare ones, or many.
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
    // Without gradients and with a negligible epsilon, the bound is nearly reached.
    if (parameters.beta1 > 0) {
      EXPECT_GT(largest_part, 0.9);
    }
  }
}

TEST(UpdateStepBounds, BoundsTheSumOfErrorsIfTheSecondMomentDoesNotFall) {
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
        // Keeps both second moments from falling.
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

TEST(UpdateStepBounds, ComputesTheLargestPossibleUpdate) {
  for (const UpdateStepParameters& parameters :
       {UpdateStepParameters{0.9, 0.95, 1e-8, 1, 0.02}, UpdateStepParameters{0.9, 0.95, 1e-8, 30, 0.02},
        UpdateStepParameters{0.9, 0.999, 1e-8, 200, 0.02}, UpdateStepParameters{0, 0.5, 0, 7, 0.02},
        UpdateStepParameters{0.99, 0.95, 1e-8, 30, 0.02}, UpdateStepParameters{0.5, 0.25, 1e-8, 9, 0.02}}) {
    const double largest = usual(parameters).largest_update();
    // The gradients for which the inequality of Cauchy and Schwarz is an equality.
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

TEST(UpdateStepBounds, ReturnsInfinityIfThereIsNoBound) {
  EXPECT_EQ(usual().next_bound(0, 1), HUGE_VAL);
  EXPECT_EQ(usual().cumulative_bound(0, 1), HUGE_VAL);
  EXPECT_EQ(usual({0.9, 0, 1e-8, 30, 0.02}).next_bound(1, 0), HUGE_VAL);
  EXPECT_EQ(usual({0.99, 0.95, 1e-8, 30, 0.02}).cumulative_bound(1, 0), HUGE_VAL);
  EXPECT_LT(usual({0.99, 0.95, 1e-8, 30, 0.02}).next_bound(1, 0), 1);
  // Moments that are the last gradient and its square carry no error over.
  EXPECT_EQ(usual({0, 0, 1e-8, 30, 0.02}).next_bound(1, 0.1), 0);
  EXPECT_EQ(usual({0, 0, 1e-8, 30, 0.02}).cumulative_bound(1, 0.1), 0);
}

}  // namespace
}  // namespace bitsnap::quantize
