// The constants of an optimizer's step, found from what it did to some elements: weighted least squares.
//
// Functions of their arguments alone, by operations of doubles that IEEE 754 defines to the last bit.
#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <span>

#include <bitsnap/error.hpp>

#include "base/scratch.hpp"
#include "codec/optimizer_step/step_prediction_kernel.hpp"

namespace bitsnap::codec {

// Some elements of a chunk, and what stands beside them in its inputs, in their order.
struct SampledStep {
  std::span<const float> elements;
  std::span<const float> base;
  std::span<const float> first;
  std::span<const float> second;  // empty for momentum
};

// Constants that may be those of the step. Which of them it is shows where they are tried.
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

// At least one. Precondition: the thread computes as a FloatMode says.
[[nodiscard]] Result<LikelyConstants> fit_step(StepForm form, const SampledStep& sample, Scratch& scratch);

}  // namespace bitsnap::codec
