// Measuring what became of elements, for the baseline of every machine.
#include "quantize/error_kernel.hpp"

#include <algorithm>
#include <cmath>

#include "quantize/error_loop.hpp"

namespace bitsnap::quantize {

void add_errors_scalar(const std::uint8_t* before, const std::uint8_t* after, std::size_t elements,
                       ErrorLanes& lanes) noexcept {
  add_errors_loop(before, after, elements, lanes);
}

void merge_part(const ErrorLanes& lanes, std::uint64_t elements, std::uint64_t past_nearest,
                ErrorTally& tally) noexcept {
  ErrorTally part{.elements = elements,
                  .changed = lanes.changed,
                  .finite = lanes.finite,
                  .nonzero = lanes.nonzero,
                  .past_nearest = past_nearest};
  double max_square = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    max_square = std::max(max_square, lanes.max_square[lane]);
    part.max_relative = std::max(part.max_relative, lanes.max_relative[lane]);
    part.sum_square += lanes.sum_square[lane];
    part.sum_relative += lanes.sum_relative[lane];
  }
  part.max_absolute = std::sqrt(max_square);  // the root of a square is the number itself
  tally.merge(part);
}

void widen_scalar(bool is_bf16, const std::uint8_t* halves, std::size_t elements, std::uint8_t* floats) noexcept {
  widen_loop(is_bf16, halves, elements, floats);
}

}  // namespace bitsnap::quantize
