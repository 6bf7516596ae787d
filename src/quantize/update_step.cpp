// The lattice of update_step and its bounds.
#include "quantize/update_step.hpp"

#include <cmath>

#include <fmt/format.h>

#include "base/cpu_dispatch.hpp"
#include "base/float_mode.hpp"
#include "base/try.hpp"
#include "quantize/integer_power.hpp"
#include "quantize/quantize_blocks.hpp"
#include "quantize/update_step_kernel.hpp"

namespace bitsnap::quantize {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Terms of a series are added until the rest is this small relative to the sum, but at most kMostTerms.
constexpr double kSeriesRest = 1e-9;
constexpr std::uint64_t kMostTerms = 100'000;

Result<void> check(bool holds, const char* what, const char* expected, double found) {
  if (holds) return {};
  return fail(ErrorKind::invalid_argument, fmt::format("{} must be {}, got {}", what, expected, found));
}

// The largest relative growth of an inverse root for an error of the square. Precondition: the error is below 1.
double inverse_root_error(double square_error) noexcept { return 1 / std::sqrt(1 - square_error) - 1; }

}  // namespace

Result<void> check_adam(const AdamNumbers& adam) {
  BITSNAP_TRY(check(adam.beta1 >= 0 && adam.beta1 < 1, "Adam's beta1", "at least 0 and below 1", adam.beta1));
  BITSNAP_TRY(check(adam.beta2 >= 0 && adam.beta2 < 1, "Adam's beta2", "at least 0 and below 1", adam.beta2));
  return check(adam.eps >= 0 && adam.eps < kInfinity, "Adam's epsilon", "at least 0 and finite", adam.eps);
}

Result<UpdateStep> UpdateStep::of(const UpdateStepParameters& parameters) {
  const auto [beta1, beta2, epsilon, step_count, update_step] = parameters;
  BITSNAP_TRY(check_adam({.beta1 = beta1, .beta2 = beta2, .eps = epsilon, .step = step_count}));
  BITSNAP_TRY(check(step_count >= 1, "update_step: the step count", "at least 1", 0));
  BITSNAP_TRY(
      check(update_step > 0 && update_step <= 1, "update_step: the step", "above 0 and at most 1", update_step));
  const FloatMode mode;
  const double correction1 = 1 - integer_power(beta1, step_count);
  const double correction2 = 1 - integer_power(beta2, step_count);
  const double scaled = update_step * correction1;
  const codec::Lattice lattice{.a = static_cast<float>(scaled / std::sqrt(correction2)),
                               .b = static_cast<float>(scaled * epsilon)};
  BITSNAP_TRY(check(std::isnormal(lattice.a), "update_step: the step", "large enough for F32", update_step));
  BITSNAP_TRY(check(std::isfinite(lattice.b), "update_step: epsilon", "small enough for F32", epsilon));
  return UpdateStep(parameters, correction1, correction2, lattice);
}

Result<void> UpdateStep::quantize(DType dtype, ByteSpan elements, std::span<const Beside> beside,
                                  ErrorTally* tally) const {
  if (dtype != DType::f32 || beside.size() != 1 || beside[0].dtype != DType::f32 ||
      beside[0].bytes.size() != elements.size()) {
    return fail(
        ErrorKind::invalid_argument,
        fmt::format("update_step: expected F32 elements with as many F32 second moments, found {} with {} tensors",
                    dtype_name(dtype), beside.size()));
  }
  BITSNAP_TRY(check_elements(name(), dtype, elements));
  const auto* const squares = reinterpret_cast<const std::uint8_t*>(beside[0].bytes.data());
  const auto round = [this, squares](const Block& block) -> std::size_t {
    kernels<UpdateStepKernels>().round_to_updates(block.elements, squares + sizeof(float) * block.first, block.count,
                                                  {lattice_.a, lattice_.b});
    return 0;
  };
  quantize_blocks(dtype, elements, round, tally);
  return {};
}

// Let S = step * (1 - beta1^t) * (sqrt(v / (1 - beta2^t)) + epsilon) be the exact scale; then u = step * m / S. The
// computed scale s has at most six rounding errors of 2^-24: of a, b, the root, the product and the sum, and one for
// subnormal terms of a normal sum. The quotient q of m and s has one rounding error, and so has the multiple m' of the
// integer j next to q:
//
// |m / s - j| <= 1 / 2 + |m / s| * 2^-24,  |m' / s - j| <= |j| * 2^-24,  so
// |u' - u| = step * |m' - m| / S <= step / 2 * (1 + 2^-21) + |u| * 2^-22,  with room for products of these.
double UpdateStep::bound(double update) const noexcept {
  return parameters_.update_step / 2 * (1 + 0x1p-21) + std::abs(update) * 0x1p-22;
}

// With D = sqrt(v / c2) + epsilon for the exact second moment and D' for the stored one, u changes by u * (D / D' - 1),
// and D / D' is at most 1 / sqrt(1 - e). The rounding errors of F32 are relative to the update with D'.
double UpdateStep::bound(double update, double square_error) const noexcept {
  if (!(square_error < 1)) return kInfinity;
  const double share = inverse_root_error(square_error);
  return bound(update * (1 + share)) + std::abs(update) * share;
}

// Let D = sqrt(v+ / c2+) + epsilon one step later, c1+ and c2+ the corrections at t + 1, and let primes mark what
// follows from the stored values. The next update is u+ = m+ / (c1+ * D). The difference is
//
//   u+' - u+ = (m+' - m+) / (c1+ * D') + u+ * (D / D' - 1).
//
// The first moment: m+ = beta1 * m + (1 - beta1) * g, so m+' - m+ = beta1 * (m' - m), and |m' - m| is at most
// bound * c1 * (sqrt(v' / c2) + epsilon). As v+' >= beta2 * v', D' is at least sqrt(beta2 * v' / c2+) + epsilon, which
// is that root times sqrt(beta2 * c2 / c2+) < 1, at least. So the first part is at most
//
//   bound * beta1 * c1 / c1+ * sqrt(c2+ / (beta2 * c2)).
//
// The second moment: v+ = beta2 * v + (1 - beta2) * g^2 is off by no larger factor than v, so D / D' is at most
// 1 / sqrt(1 - e), and 1 - D / D' at most 1 - 1 / sqrt(1 + e), which is less.
//
// With beta1 of 0 there is no first part, and with beta2 of 0 no second one.
double UpdateStep::next_bound(double update, double square_error) const noexcept {
  const auto& [beta1, beta2, epsilon, step_count, update_step] = parameters_;
  if ((beta2 == 0 && beta1 != 0) || !(square_error < 1)) return kInfinity;
  if (beta2 == 0) return 0;
  const FloatMode mode;
  const double share = inverse_root_error(square_error);
  const double next1 = 1 - integer_power(beta1, step_count + 1);
  const double next2 = 1 - integer_power(beta2, step_count + 1);
  const double of_moment = beta1 * correction1_ / next1 * std::sqrt(next2 / (beta2 * correction2_));
  return bound(update * (1 + share)) * of_moment + std::abs(update) * share;
}

// The same k steps later: m' - m is multiplied by beta1^k, and v' is at least multiplied by beta2^k, so the first part
// is at most
//
//   bound * r^k * c1 / c1(t + k) * sqrt(c2(t + k) / c2),  r = beta1 / sqrt(beta2).
//
// Beyond the summed terms, c1 / c1(t + k) < 1 and c2(t + k) < 1: a geometric series. The second part: v' - v is
// multiplied by beta2^k. If v(t + k) is at least v, its relative error is at most e * beta2^k. f(e) = 1 / sqrt(1 - e) -
// 1 is convex with f(0) = 0, so f(e * beta2^k) <= beta2^k * f(e): also a geometric series.
double UpdateStep::cumulative_bound(double update, double square_error) const noexcept {
  const auto& [beta1, beta2, epsilon, step_count, update_step] = parameters_;
  if ((beta1 * beta1 >= beta2 && beta1 != 0) || !(square_error < 1)) return kInfinity;
  if (beta2 == 0) return 0;
  const FloatMode mode;
  const double of_squares = inverse_root_error(square_error);
  const double ratio = beta1 / std::sqrt(beta2);
  double left1 = integer_power(beta1, step_count);
  double left2 = integer_power(beta2, step_count);
  double sum = 0;
  double share = 1;  // ratio^k
  double rest = kInfinity;
  for (std::uint64_t k = 1; k <= kMostTerms && rest > kSeriesRest * sum; ++k) {
    left1 *= beta1;
    left2 *= beta2;
    share *= ratio;
    sum += share * correction1_ / (1 - left1) * std::sqrt((1 - left2) / correction2_);
    rest = share * ratio / (1 - ratio) / std::sqrt(correction2_);
  }
  return bound(update * (1 + of_squares)) * (sum + rest) + std::abs(update) * of_squares * beta2 / (1 - beta2);
}

// m = (1 - beta1) * sum of beta1^i * g, v = (1 - beta2) * sum of beta2^i * g^2, i from 0 to t - 1. By Cauchy and
// Schwarz, |sum of beta1^i * g| <= sqrt(sum of (beta1^2 / beta2)^i) * sqrt(sum of beta2^i * g^2). The bound grows with
// the steps.
double UpdateStep::largest_update(std::uint64_t steps) const noexcept {
  const auto& [beta1, beta2, epsilon, step_count, update_step] = parameters_;
  if (beta1 == 0 && beta2 == 0) return 1;  // m is g, and v its square
  if (beta2 == 0) return steps == 1 ? 1 : kInfinity;
  const FloatMode mode;
  const double ratio = beta1 * beta1 / beta2;
  const double terms = ratio == 1 ? static_cast<double>(steps) : (1 - integer_power(ratio, steps)) / (1 - ratio);
  const double correction1 = 1 - integer_power(beta1, steps);
  const double correction2 = 1 - integer_power(beta2, steps);
  const double largest = std::sqrt(correction2 / (1 - beta2) * terms) / correction1 * (1 - beta1);
  return ratio >= 1 && steps == kEver ? kInfinity : largest;
}

}  // namespace bitsnap::quantize
