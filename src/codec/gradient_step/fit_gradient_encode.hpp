// Finds the constants of a step whose gradients have few significant bits, from its effect on some elements.
//
// The results depend on the arguments alone: all operations are IEEE 754 operations in a fixed order.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include <bitsnap/error.hpp>

#include "base/scratch.hpp"
#include "base/spread_runs.hpp"
#include "codec/gradient_step/gradient_step_kernel.hpp"

namespace bitsnap::codec {

// Sampled elements of a chunk, and their bases.
struct SampledMoves {
  std::span<const float> elements;
  std::span<const float> base;

  [[nodiscard]] std::size_t size() const noexcept { return elements.size(); }
};

// What a fit looks at. Of the sampled elements, only some 60 whose base hardly counts are searched for a common factor.
inline constexpr SpreadRuns kGradientRuns{.count = 128, .elements = 32, .alignment = 16};

// All places of a sample in an order in which neighbours are far apart. Rows that have no gradient, or one of many
// bits, lie together, and a few places have to stand for all.
class Places {
 public:
  explicit Places(std::size_t size) noexcept : size_(size) {}

  std::size_t next() noexcept {
    constexpr std::size_t kStride = 2531;  // a prime number, near 4,096 divided by the golden ratio
    at_ = (at_ + kStride) % size_;
    return at_;
  }

 private:
  std::size_t size_;
  std::size_t at_ = 0;
};

struct FoundGradient {
  GradientForm form = GradientForm::lerp_fused;
  GradientConstants constants = {};
  unsigned bits = 0;        // significant bits of nearly all numbers; 0: the numbers differ
  std::size_t sampled = 0;  // elements that were tried with these constants
  std::size_t exact = 0;    // those that follow exactly from numbers of few bits
};

// nullopt if the elements do not look like the results of such a step. Precondition: a FloatMode is active.
[[nodiscard]] Result<std::optional<FoundGradient>> fit_gradient(const SampledMoves& sample, Scratch& scratch);

// The float `steps` floats above a positive one.
[[nodiscard]] float stepped(float number, int steps) noexcept;

// A rate near this one whose beta, 1 minus it, people choose: it has at most three significant digits.
[[nodiscard]] std::optional<double> stated_rate(double rate) noexcept;

}  // namespace bitsnap::codec
