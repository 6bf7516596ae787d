#include "quantize/update_errors.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/float_mode.hpp"
#include "quantize/integer_power.hpp"

namespace bitsnap::quantize {
namespace {

double element(ConstByteSpan bytes, std::size_t i) noexcept {
  return static_cast<double>(std::bit_cast<float>(load_le<std::uint32_t>(bytes.data() + i * sizeof(float))));
}

}  // namespace

UpdateErrors update_errors(const AdamNumbers& adam, const Moments& before, const Moments& stored) noexcept {
  const FloatMode mode;
  const double correction1 = 1 - integer_power(adam.beta1, adam.step);
  const double correction2 = 1 - integer_power(adam.beta2, adam.step);
  const auto update = [&](const Moments& of, std::size_t i) {
    return element(of.first, i) / correction1 / (std::sqrt(element(of.second, i) / correction2) + adam.eps);
  };
  UpdateErrors errors;
  const std::size_t count = before.first.size() / sizeof(float);
  for (std::size_t i = 0; i < count; i += kPerLookedAt) {
    const double own = update(before, i);
    const double off = std::abs(update(stored, i) - own);
    if (!std::isfinite(own) || !std::isfinite(off)) continue;
    ++errors.elements;
    errors.largest = std::max(errors.largest, off);
    errors.sum += off;
    errors.sum_square += off * off;
    errors.sum_update += std::abs(own);
    errors.sum_update_square += own * own;
  }
  return errors;
}

void merge(UpdateErrors& to, const UpdateErrors& next) noexcept {
  to.elements += next.elements;
  to.largest = std::max(to.largest, next.largest);
  to.sum += next.sum;
  to.sum_square += next.sum_square;
  to.sum_update += next.sum_update;
  to.sum_update_square += next.sum_update_square;
}

}  // namespace bitsnap::quantize
