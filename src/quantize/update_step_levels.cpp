// A loop that compilers vectorize at each CPU level.
#include "quantize/update_step_kernel.hpp"

#include "codec/scaled_by/lattice_arithmetic.hpp"

namespace bitsnap::quantize {
namespace {

// Masks: all bits set if true, else none. Branches and conditional expressions prevent vectorization.
inline std::uint32_t is_below(std::uint32_t one, std::uint32_t other) noexcept {  // both below 2^31
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(one - other) >> 31);
}

// For the bits of a float: whether it is finite, without sign, and at least the float with the bits `least`.
inline std::uint32_t is_from(std::uint32_t least, std::uint32_t bits) noexcept {
  const std::uint32_t magnitude = bits & 0x7fffffff;
  return is_below(bits >> 31, 1) & is_below(least - 1, magnitude) & is_below(magnitude, 0x7f800000);
}

void round_to_updates(std::uint8_t* __restrict moments, const std::uint8_t* __restrict squares, std::size_t elements,
                      const codec::LatticeScale& scale) noexcept {
  constexpr std::uint32_t kLeast = 1;
  constexpr std::uint32_t kLeastNormal = 0x00800000;
  const auto [a, b] = scale;
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint32_t bits = load_at<std::uint32_t>(moments, i);
    const auto moment = __builtin_bit_cast(float, bits);
    const std::uint32_t square = load_at<std::uint32_t>(squares, i);
    const float own = codec::scale_of(__builtin_bit_cast(float, square), a, b);
    const float nearest = static_cast<float>(codec::nearest_integer(moment / own)) * own;
    const auto multiple = __builtin_bit_cast(std::uint32_t, nearest);
    const float away = moment - nearest;
    // The check is needed because a NaN or a moment beyond the range is not near the multiple. The bits of floats
    // without signs order like the floats.
    const std::uint32_t distance = __builtin_bit_cast(std::uint32_t, away) & 0x7fffffff;
    const std::uint32_t most = __builtin_bit_cast(std::uint32_t, 0.75F * own) & 0x7fffffff;
    const std::uint32_t rounded = is_from(kLeast, square) &
                                  is_from(kLeastNormal, __builtin_bit_cast(std::uint32_t, own)) &
                                  ~is_below(most, distance);
    const std::uint32_t not_zero = is_below(0, bits & 0x7fffffff);
    const std::uint32_t out = ((multiple & rounded) | (bits & ~rounded)) & not_zero;
    store_at(moments, i, out);
  }
}

}  // namespace

constinit const UpdateStepKernels UpdateStepKernels::BITSNAP_KERNEL_LEVEL = {quantize::round_to_updates};

}  // namespace bitsnap::quantize
