// Finds the constants of an optimizer step from its effect on some elements, by weighted least squares.
//
// The results depend on the arguments alone: all operations are IEEE 754 operations on doubles.
#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>

#include <bitsnap/error.hpp>

#include "base/scratch.hpp"
#include "codec/optimizer_step/step_prediction_kernel.hpp"

namespace bitsnap::codec {

// Sampled elements of a chunk and the corresponding elements of its inputs.
struct SampledStep {
  std::span<const float> elements;
  std::span<const float> base;
  std::span<const float> first;
  std::span<const float> second;  // empty for momentum
};

// Candidates for the constants of a step. The encoder tries them.
class LikelyConstants {
 public:
  void add(const StepConstants& constants) noexcept {
    if (size_ < std::ssize(likely_)) likely_[static_cast<std::size_t>(size_++)] = constants;
  }
  [[nodiscard]] auto begin() const noexcept { return likely_.begin(); }
  [[nodiscard]] auto end() const noexcept { return likely_.begin() + size_; }

 private:
  std::array<StepConstants, 8> likely_;
  std::ptrdiff_t size_ = 0;
};

// The number rounded to one to three significant decimal digits, as people state hyperparameters, if that is close.
[[nodiscard]] std::optional<double> stated(double number, int digits = 3);

// The rate, 1 - beta, of the step from the later state to the earlier one: v = v' (1 - r) + r g^2 for r = reversed(1 -
// b2). Reversing twice gives the rate back.
[[nodiscard]] constexpr double reversed_rate(double rate) noexcept { return rate / (rate - 1); }

// A rate, 1 - beta, near this one with a beta as people state it; negative for the step to the earlier state.
[[nodiscard]] std::optional<double> stated_rate(double rate, int digits = 3);

// Returns at least one candidate. Precondition: a FloatMode is active.
[[nodiscard]] Result<LikelyConstants> fit_step(StepForm form, const SampledStep& sample, Scratch& scratch);

}  // namespace bitsnap::codec
