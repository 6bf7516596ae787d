// ErrorTally: the measured errors of a quantizer, as counts, largest errors and sums.
//
// Each chunk has its own tally. Merging the tallies in the order of the chunks gives the same bits for every number of
// threads; another division of the tensor would give other sums, because sums of floats depend on their order.
#pragma once

#include <cstdint>

namespace bitsnap {

// An element x becomes x'. Its absolute error is |x' - x|, in the unit of the tensor. Its relative error is
// |x' - x| / |x|, without a unit. Errors compare numbers, not bits: the error of a -0 that becomes +0 is 0.
struct ErrorTally {
  std::uint64_t elements = 0;
  std::uint64_t changed = 0;       // elements whose bits changed
  std::uint64_t finite = 0;        // elements that are neither infinite nor NaN: they have an absolute error
  std::uint64_t nonzero = 0;       // finite elements that are not 0: they have a relative error
  std::uint64_t past_nearest = 0;  // elements for which a rule of the quantizer forbids the nearest value; they have a
                                   // wider bound (docs/spec/quantizers.md)
  double max_absolute = 0;
  double max_relative = 0;
  double sum_square = 0;    // of the squares of the absolute errors
  double sum_relative = 0;  // of the relative errors

  // Elements whose bits did not change.
  [[nodiscard]] std::uint64_t kept_exact() const noexcept { return elements - changed; }

  // Mean relative error (MRE) and mean squared error (MSE); 0 if no element has such an error.
  [[nodiscard]] double mean_relative() const noexcept {
    return nonzero == 0 ? 0.0 : sum_relative / static_cast<double>(nonzero);
  }
  [[nodiscard]] double mean_square() const noexcept {
    return finite == 0 ? 0.0 : sum_square / static_cast<double>(finite);
  }

  // Adds the tally of the next chunk.
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
