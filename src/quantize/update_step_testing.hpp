// What the tests of update_step share: usual parameters, random ones, and updates of Adam in extended precision.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <cstdint>

#include "quantize/update_step.hpp"

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wdouble-promotion"  // exact values are wider than the values compared with them
#endif

namespace bitsnap::quantize {

using Exact = long double;

inline constexpr UpdateStepParameters kUsual{
    .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .step_count = 300, .update_step = 0.02};

inline UpdateStep usual(UpdateStepParameters parameters = kUsual) {
  auto made = UpdateStep::of(parameters);
  if (!made) ADD_FAILURE() << made.error().message();
  return *made;
}

// The update that Adam computes from moments, without rounding.
struct Corrected {
  explicit Corrected(const UpdateStepParameters& from, std::uint64_t later = 0)
      : epsilon(from.epsilon),
        first(1 - std::pow(Exact{from.beta1}, static_cast<Exact>(from.step_count + later))),
        second(1 - std::pow(Exact{from.beta2}, static_cast<Exact>(from.step_count + later))) {}

  [[nodiscard]] Exact update(Exact moment, Exact square) const {
    return moment / first / (std::sqrt(square / second) + epsilon);
  }
  // The first moment that makes this update.
  [[nodiscard]] Exact moment(Exact update, Exact square) const {
    return update * first * (std::sqrt(square / second) + epsilon);
  }

  Exact epsilon, first, second;
};

inline rc::Gen<double> any_beta() {
  return rc::gen::weightedOneOf<double>(
      {{4, rc::gen::element(0.9, 0.95, 0.98, 0.99, 0.999, 0.9999)},
       {1, rc::gen::map(rc::gen::inRange(0, 1'000'000), [](int part) { return part / 1e6; })}});
}

inline rc::Gen<UpdateStepParameters> any_parameters() {
  return rc::gen::build<UpdateStepParameters>(
      rc::gen::set(&UpdateStepParameters::beta1, any_beta()), rc::gen::set(&UpdateStepParameters::beta2, any_beta()),
      rc::gen::set(&UpdateStepParameters::epsilon, rc::gen::element(0.0, 1e-8, 1e-5, 1e-15, 1e-37, 1.0)),
      rc::gen::set(&UpdateStepParameters::step_count,
                   rc::gen::weightedOneOf<std::uint64_t>({{1, rc::gen::element<std::uint64_t>(1, 2, 3)},
                                                          {1, rc::gen::inRange<std::uint64_t>(1, 100'000)}})),
      rc::gen::set(&UpdateStepParameters::update_step, rc::gen::element(0.02, 1.0, 0.005, 1e-4, 1.0 / 3)));
}

}  // namespace bitsnap::quantize
