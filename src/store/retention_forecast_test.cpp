// The played run: what it holds and writes is what the patterns of coding_plan.hpp say, and what a store does.
#include "store/retention_forecast.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace bitsnap::store {
namespace {

TrialShares shares(double alone, double earlier, double later) {
  TrialShares made{.alone = alone, .keyframe = alone, .earlier = {earlier}, .later = {later}};
  expect_farther(made);
  return made;
}

TEST(Forecast, OneCheckpointIsStandalone) {
  const Forecast forecast = forecast_long_run(shares(0.8, 0.3, 0.3), 1, 8);
  EXPECT_NEAR(forecast.held, 0.8, 1e-6);
  EXPECT_NEAR(forecast.peak, 1.6, 1e-6);
  EXPECT_NEAR(forecast.written, 0.8, 1e-6);
}

TEST(Forecast, CodesBackwardsWhatChangesLittle) {
  const Forecast forecast = forecast_long_run(shares(0.8, 0.28, 0.3), 5, 8);
  EXPECT_TRUE(forecast.pattern.backwards);
  EXPECT_NEAR(forecast.held, 0.8 + 4 * 0.3, 1e-4);
  EXPECT_NEAR(forecast.written, 0.8 + 0.3, 1e-4);
  EXPECT_GE(forecast.peak, forecast.held + 0.3 - 1e-4);
}

TEST(Forecast, StoresStandaloneWhatGainsNothing) {
  const Forecast forecast = forecast_long_run(shares(0.8, 0.79, 0.8), 4, 8);
  EXPECT_NEAR(forecast.held, 3.2, 0.01);
  EXPECT_NEAR(forecast.written, 0.8, 0.08);  // now and then, one shows what it would gain
  EXPECT_NEAR(forecast_long_run(shares(0.8, 0.1, 0.1), 4, 0).held, 3.2, 1e-6);
}

// What a store of four linear layers did, five steps apart, with keep_last=5: bench/retention_disk.py.
TEST(Forecast, FollowsTheCheckpointsAsTheyChange) {
  std::vector<TrialShares> run;
  const std::vector<double> alone = {.8152, .8104, .8078, .8065, .8038, .8026, .8014, .8011};
  const std::vector<double> earlier = {.7773, .7724, .7681, .7509, .7472, .7443, .7408, .7381};
  const std::vector<double> later = {.7773, .7707, .7527, .7488, .7455, .7424, .7402, .7378};
  for (std::size_t i = 0; i < alone.size(); ++i) run.push_back(shares(alone[i], earlier[i], later[i]));
  const Forecast forecast = forecast_retention(run, 5, 8);
  // Only the first one was coded again, and goes at the sixth save.
  const double fifth = .7773 + .8104 + .8078 + .8065 + .8038;
  const double eighth = .8065 + .8038 + .8026 + .8014 + .8011;
  EXPECT_LT(forecast.held, fifth + 0.02);
  EXPECT_NEAR(forecast.held, (fifth + eighth) / 2, 0.02);
  EXPECT_NEAR(forecast.written, (.8038 + .8026 + .8014 + .8011) / 4, 1e-4);
}

TEST(Forecast, AddsUpChains) {
  std::vector<TrialShares> run(10, shares(0.8, 0.5, 0.5));
  for (TrialShares& each : run) each.keyframe = 0.6;
  EXPECT_NEAR(forecast_chain(run, 8, BaseRule::previous).held, 0.8 + 8 * 0.5 + 0.6, 1e-6);
  EXPECT_NEAR(forecast_chain(run, 0, BaseRule::previous).held, 0.8 + 9 * 0.6, 1e-6);
  for (TrialShares& each : run) each.earlier = {0.5, 0.7};
  EXPECT_NEAR(forecast_chain(run, 4, BaseRule::keyframe).held, 0.8 + 0.6 + 2 * 0.5 + 6 * 0.7, 1e-6);
}

TEST(Forecast, ScalesRunsThatKeepVeryMany) {
  const Forecast some = forecast_long_run(shares(0.8, 0.28, 0.3), 64, 8);
  const Forecast many = forecast_long_run(shares(0.8, 0.28, 0.3), 640, 8);
  EXPECT_NEAR(many.held, 10 * some.held, 1e-6);
}

}  // namespace
}  // namespace bitsnap::store
