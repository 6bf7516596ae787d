// Loops that compilers vectorize at each CPU level: first squares and quotients, then the additions.
#include "quantize/error_kernel.hpp"

#include "quantize/lanes_loop.hpp"

namespace bitsnap::quantize {
namespace {

void add_errors(const std::uint8_t* before, const std::uint8_t* after, std::size_t elements,
                ErrorLanes& lanes) noexcept {
  constexpr std::uint32_t kMagnitude = 0x7fffffff;
  constexpr std::uint32_t kInfinity = 0x7f800000;
  constexpr std::uint32_t kOne = 0x3f800000;
  double square[kLaneRun];
  double relative[kLaneRun];
  for (std::size_t first = 0; first < elements; first += kLaneRun) {
    const std::size_t count = elements - first < kLaneRun ? elements - first : kLaneRun;
    std::uint32_t changed = 0;
    std::uint32_t finite = 0;
    std::uint32_t nonzero = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t from = load_at<std::uint32_t>(before, first + i);
      const std::uint32_t to = load_at<std::uint32_t>(after, first + i);
      const std::uint32_t magnitude = from & kMagnitude;
      // Without branches: a non-finite element counts as 0, and 0 is divided by 1.
      const std::uint32_t is_finite = mask_of(magnitude < kInfinity);
      const std::uint32_t is_nonzero = mask_of(magnitude != 0) & is_finite;
      const double x = number_of(from & is_finite);
      const double error = __builtin_fabs(number_of(to & is_finite) - x);
      const double counted = __builtin_fabs(number_of(to & is_nonzero) - number_of(from & is_nonzero));
      changed += mask_of(from != to) & 1;
      finite += is_finite & 1;
      nonzero += is_nonzero & 1;
      square[i] = error * error;
      relative[i] = counted / __builtin_fabs(number_of((from & is_nonzero) | (kOne & ~is_nonzero)));
    }
    lanes.changed += changed;
    lanes.finite += finite;
    lanes.nonzero += nonzero;
    const std::size_t padded = pad_run(square, relative, count);
    add_to_lanes(square, padded, lanes.sum_square);
    add_to_lanes(relative, padded, lanes.sum_relative);
    max_to_lanes(square, padded, lanes.max_square);
    max_to_lanes(relative, padded, lanes.max_relative);
  }
}

void widen(bool is_bf16, const std::uint8_t* halves, std::size_t elements, std::uint8_t* floats) noexcept {
  if (is_bf16) {
    for (std::size_t i = 0; i < elements; ++i) {
      store_at(floats, i, std::uint32_t{load_at<std::uint16_t>(halves, i)} << 16);
    }
    return;
  }
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint32_t half = load_at<std::uint16_t>(halves, i);
    const std::uint32_t sign = (half & 0x8000) << 16;
    const std::uint32_t magnitude = half & 0x7fff;
    const std::uint32_t normal = (magnitude << 13) + (std::uint32_t{112} << 23);
    const std::uint32_t special = magnitude << 13 | 0x7f800000;
    const float small = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24F;
    const std::uint32_t is_small = mask_of(magnitude < 0x400);
    const std::uint32_t bits = (__builtin_bit_cast(std::uint32_t, small) & is_small) | (normal & ~is_small);
    store_at(floats, i, bits | (special & mask_of(magnitude >= 0x7c00)) | sign);
  }
}

}  // namespace

constinit const ErrorKernels ErrorKernels::BITSNAP_KERNEL_LEVEL = {quantize::add_errors, quantize::widen};

}  // namespace bitsnap::quantize
