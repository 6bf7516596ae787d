// The rate of a second moment is the median of what single elements say.
#include "codec/gradient_step/fit_square_encode.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace bitsnap::codec {
namespace {

// v' - v = rate (g^2 - v): the median over elements whose squares differ much from their bases.
double fit_square_rate(const SampledSquares& sample, double gradient_rate) noexcept {
  constexpr std::size_t kAsked = 512;
  constexpr double kMuch = 0.25;
  std::array<double, kAsked> rates;
  std::size_t size = 0;
  for (std::size_t i = 0; i < sample.elements.size() && size < kAsked; ++i) {
    const auto before = static_cast<double>(sample.before[i]);
    const double gradient = (static_cast<double>(sample.after[i]) - before) / gradient_rate + before;
    const auto base = static_cast<double>(sample.base[i]);
    const double difference = gradient * gradient - base;
    const double rate = (static_cast<double>(sample.elements[i]) - base) / difference;
    if (std::abs(difference) > kMuch * std::abs(base) && std::isfinite(rate)) rates[size++] = rate;
  }
  if (size == 0) return 0;
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(size / 2);
  std::nth_element(rates.begin(), middle, rates.begin() + static_cast<std::ptrdiff_t>(size));
  return *middle;
}

}  // namespace

std::optional<SquareConstants> constants_of_square(const SampledSquares& sample, const FoundGradient& found) noexcept {
  if (found.bits == 0 || found.form != GradientForm::lerp_fused) return std::nullopt;
  const std::optional<double> rate = stated_rate(fit_square_rate(sample, static_cast<double>(found.constants.gain)));
  if (!rate) return std::nullopt;
  return SquareConstants{.keep = static_cast<float>(1 - *rate),
                         .gain = static_cast<float>(*rate),
                         .rate = found.constants.gain,
                         .scale = found.constants.scale,
                         .bits = found.bits};
}

}  // namespace bitsnap::codec
