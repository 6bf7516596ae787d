// How far a quantizer moved elements: counts, largest and mean errors, reached and not just promised. Plain data.
//
// Each part of a tensor has a tally of its own, whichever thread it is quantized by; merged in the order of the parts,
// they give the same bits always. Parts are chunks: sums of floats depend on where a tensor is cut.
#pragma once

#include <cstdint>

namespace bitsnap {

// Of an element x that became x': its absolute error is |x' - x|, in the tensor's own unit, and its relative error
// |x' - x| / |x|, without a unit. Errors are those of the numbers, so -0 that became +0 has changed by 0.
struct ErrorTally {
  std::uint64_t elements = 0;      // all
  std::uint64_t changed = 0;       // other bits than before
  std::uint64_t finite = 0;        // neither infinite nor NaN: those that have an absolute error
  std::uint64_t nonzero = 0;       // finite and not 0: those that have a relative error
  std::uint64_t past_nearest = 0;  // not at what was nearest, by a rule of the quantizer, within its wider bound
  double max_absolute = 0;
  double max_relative = 0;
  double sum_square = 0;    // of absolute errors squared
  double sum_relative = 0;  // of relative errors

  // Elements with the bits that they had.
  [[nodiscard]] std::uint64_t kept_exact() const noexcept { return elements - changed; }

  // MRE and MSE; 0 where no element has such an error.
  [[nodiscard]] double mean_relative() const noexcept {
    return nonzero == 0 ? 0.0 : sum_relative / static_cast<double>(nonzero);
  }
  [[nodiscard]] double mean_square() const noexcept {
    return finite == 0 ? 0.0 : sum_square / static_cast<double>(finite);
  }

  // Adds those of the part that follows.
  void merge(const ErrorTally& next) noexcept {
    elements += next.elements;
    changed += next.changed;
    finite += next.finite;
    nonzero += next.nonzero;
    past_nearest += next.past_nearest;
    max_absolute = next.max_absolute > max_absolute ? next.max_absolute : max_absolute;
    max_relative = next.max_relative > max_relative ? next.max_relative : max_relative;
    sum_square += next.sum_square;
    sum_relative += next.sum_relative;
  }

  friend bool operator==(const ErrorTally&, const ErrorTally&) = default;
};

}  // namespace bitsnap
