// Solves for the unknown constants of a step, in equations that are linear in them.
//
// Second moment: v' = b2 v + (1 - b2) g^2 with the gradient g = d / (1 - b1) + m and d = m' - m is linear in b2 and
// in the factors of d^2, d m and m^2, which give b1 and b2. Adam: x' = w x - a m' / (sqrt(v') + e) becomes, with u = x'
// - x and r = sqrt(v'), u r = -a m' - (1 - w) x r - e u - e (1 - w) x. Each equation is weighted by the rounding error
// of its element. Equations with much larger factors than most are left out; then, repeatedly, those with much larger
// errors than most: elements that this step did not change this way.
#include "codec/optimizer_step/fit_step_encode.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>

#include "base/try.hpp"

namespace bitsnap::codec {
namespace {

constexpr std::size_t kRounds = 4;
constexpr double kOutlier = 8;        // times the median error
constexpr double kLargeFactor = 100;  // times the median

// If less of a column remains after subtracting the previous ones, it is linearly dependent.
constexpr double kIndependent = 1e-13;

template <std::size_t kUnknowns>
using Unknowns = std::array<double, kUnknowns>;

template <std::size_t kUnknowns>
struct Equation {
  Unknowns<kUnknowns> factors;
  double result;
  bool used;
};

// Equations for up to `most` elements. The memory is the scratch's while its frame is open.
template <std::size_t kUnknowns>
class Equations {
 public:
  static Result<Equations> make(std::size_t elements, Scratch& scratch) {
    Equations equations;
    BITSNAP_ASSIGN(equations.all_, scratch.take_array<Equation<kUnknowns>>(elements));
    BITSNAP_ASSIGN(equations.measures_, scratch.take_array<double>(elements));
    return equations;
  }

  // Skips equations that overflow a double.
  void add(Unknowns<kUnknowns> factors, double result, double weight) noexcept {
    constexpr double kMost = 1e150;  // its square is finite
    result *= weight;
    bool fits = std::abs(result) < kMost;
    for (double& factor : factors) {
      factor *= weight;
      fits = fits && std::abs(factor) < kMost;
    }
    if (fits) all_[size_++] = {factors, result, true};
  }

  [[nodiscard]] Unknowns<kUnknowns> solve() noexcept {
    leave_out(
        [](const Equation<kUnknowns>& equation) {
          double most = 0;
          for (const double factor : equation.factors) most = std::max(most, std::abs(factor));
          return most;
        },
        kLargeFactor);
    Unknowns<kUnknowns> x = solve_used();
    for (std::size_t round = 1; round < kRounds; ++round) {
      if (!leave_out([&x](const Equation<kUnknowns>& equation) { return error_of(equation, x); }, kOutlier)) break;
      x = solve_used();
    }
    return x;
  }

 private:
  Equations() = default;

  // Solves the normal equations by Cholesky decomposition, with columns scaled to length one. Unknowns that the
  // equations do not determine are 0.
  [[nodiscard]] Unknowns<kUnknowns> solve_used() const noexcept {
    double squares[kUnknowns][kUnknowns] = {};
    Unknowns<kUnknowns> right{};
    for (const Equation<kUnknowns>& equation : all_.first(size_)) {
      if (!equation.used) continue;
      for (std::size_t j = 0; j < kUnknowns; ++j) {
        for (std::size_t k = 0; k <= j; ++k) squares[j][k] += equation.factors[j] * equation.factors[k];
        right[j] += equation.factors[j] * equation.result;
      }
    }
    Unknowns<kUnknowns> scale{};
    for (std::size_t j = 0; j < kUnknowns; ++j) scale[j] = squares[j][j] > 0 ? 1 / std::sqrt(squares[j][j]) : 0;
    double lower[kUnknowns][kUnknowns] = {};
    Unknowns<kUnknowns> x{};
    for (std::size_t j = 0; j < kUnknowns; ++j) {
      for (std::size_t k = 0; k <= j; ++k) {
        double left = squares[j][k] * scale[j] * scale[k];
        for (std::size_t l = 0; l < k; ++l) left -= lower[j][l] * lower[k][l];
        lower[j][k] = k < j ? quotient(left, lower[k][k]) : left > kIndependent ? std::sqrt(left) : 0;
      }
      double left = right[j] * scale[j];
      for (std::size_t l = 0; l < j; ++l) left -= lower[j][l] * x[l];
      x[j] = quotient(left, lower[j][j]);
    }
    for (std::size_t j = kUnknowns; j-- > 0;) {
      double left = x[j];
      for (std::size_t l = j + 1; l < kUnknowns; ++l) left -= lower[l][j] * x[l];
      x[j] = quotient(left, lower[j][j]);
    }
    for (std::size_t j = 0; j < kUnknowns; ++j) x[j] *= scale[j];
    return x;
  }

  static double quotient(double one, double other) noexcept { return other > 0 ? one / other : 0; }

  // Drops equations whose `measure` exceeds a multiple of the median. Returns false if that drops nothing new.
  template <typename Measure>
  bool leave_out(const Measure& measure, double times) noexcept {
    if (size_ == 0) return false;
    // NaNs cannot be sorted.
    for (std::size_t i = 0; i < size_; ++i) {
      const double own = measure(all_[i]);
      measures_[i] = std::isnan(own) ? std::numeric_limits<double>::max() : own;
    }
    const auto sorted = measures_.first(size_);
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(size_ / 2);
    std::ranges::nth_element(sorted, middle);
    const double most = *middle * times;
    bool changed = false;
    for (Equation<kUnknowns>& equation : all_.first(size_)) {
      const bool use = measure(equation) <= most;
      changed = changed || use != equation.used;
      equation.used = use;
    }
    return changed;
  }

  static double error_of(const Equation<kUnknowns>& equation, const Unknowns<kUnknowns>& x) noexcept {
    double sum = -equation.result;
    for (std::size_t j = 0; j < kUnknowns; ++j) sum += equation.factors[j] * x[j];
    return std::abs(sum);
  }

  std::span<Equation<kUnknowns>> all_;
  std::span<double> measures_;
  std::size_t size_ = 0;
};

StepConstants constants_of(double keep, double step, double other) noexcept {
  return {.keep = static_cast<float>(keep), .step = static_cast<float>(step), .other = static_cast<float>(other)};
}

// One sampled element and its inputs.
struct Moved {
  double element = 0;
  double base = 0;
  double first = 0;
  double second = 0;

  [[nodiscard]] double change() const noexcept { return element - base; }
  // The magnitude whose rounding error weights the equation.
  [[nodiscard]] double size() const noexcept { return std::max(std::abs(base), std::abs(element)); }
};

Moved moved_at(const SampledStep& sample, std::size_t i) noexcept {
  return {.element = static_cast<double>(sample.elements[i]),
          .base = static_cast<double>(sample.base[i]),
          .first = static_cast<double>(sample.first[i]),
          .second = sample.second.empty() ? 0 : static_cast<double>(sample.second[i])};
}

// keep and step for a known rate, 1 - b1.
Result<Unknowns<2>> fit_gains(const SampledStep& sample, double rate, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(auto equations, Equations<2>::make(sample.elements.size(), scratch));
  for (std::size_t i = 0; i < sample.elements.size(); ++i) {
    const Moved of = moved_at(sample, i);
    const double gradient = (of.second - of.first) / rate + of.first;
    if (of.element > 0) equations.add({of.base, gradient * gradient}, of.element, 1 / of.element);
  }
  return equations.solve();
}

Result<void> fit_second_moment(const SampledStep& sample, Scratch& scratch, LikelyConstants& likely) {
  constexpr double kUsualRate = 0.1;
  std::optional<double> rate;
  bool is_back = false;  // whether the base is the later state
  {
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(auto equations, Equations<4>::make(sample.elements.size(), scratch));
    for (std::size_t i = 0; i < sample.elements.size(); ++i) {
      const Moved of = moved_at(sample, i);
      const double change = of.second - of.first;
      if (!(of.element > 0)) continue;
      equations.add({of.base, change * change, change * of.first, of.first * of.first}, of.element, 1 / of.element);
    }
    const Unknowns<4> x = equations.solve();
    if (x[1] != 0 && x[2] > 0) rate = x[2] / (2 * x[1]);
    is_back = rate && *rate < 0;
  }
  const auto near_stated = [is_back](double number) -> std::optional<double> {
    const std::optional<double> near = stated(is_back ? reversed_rate(number) : number);
    return near && is_back ? reversed_rate(*near) : near;
  };
  const auto add = [&](double likely_rate) -> Result<void> {
    BITSNAP_ASSIGN(const Unknowns<2> gains, fit_gains(sample, likely_rate, scratch));
    if (const auto gain = near_stated(gains[1])) likely.add(constants_of(1 - *gain, *gain, likely_rate));
    likely.add(constants_of(gains[0], gains[1], likely_rate));
    return {};
  };
  if (rate) {
    if (const auto exact = near_stated(*rate)) BITSNAP_TRY(add(*exact));
    BITSNAP_TRY(add(*rate));
  }
  // If the gradients or the moments of all these elements are 0, the equations have too few independent columns.
  BITSNAP_TRY(add(is_back ? reversed_rate(kUsualRate) : kUsualRate));
  return {};
}

// Avoids 0 / 0 without changing other results.
constexpr double kLeastEpsilon = 1e-30;

// The weight decay, from elements without moments, for example embeddings of tokens that never occurred.
Result<double> fit_decay(const SampledStep& sample, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(auto equations, Equations<1>::make(sample.elements.size(), scratch));
  for (std::size_t i = 0; i < sample.elements.size(); ++i) {
    const Moved of = moved_at(sample, i);
    if (of.first == 0) equations.add({-of.base}, of.change(), 1 / of.size());
  }
  return equations.solve()[0];
}

// `epsilon` is an estimate of the constant added to the root.
Result<void> add_adam(const SampledStep& sample, double epsilon, Scratch& scratch, LikelyConstants& likely,
                      double* found = nullptr) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(auto equations, Equations<4>::make(sample.elements.size(), scratch));
  for (std::size_t i = 0; i < sample.elements.size(); ++i) {
    const Moved of = moved_at(sample, i);
    const double root = std::sqrt(of.second);
    equations.add({-of.first, -of.base * root, -of.change(), -of.base}, of.change() * root,
                  1 / ((root + epsilon) * of.size()));
  }
  const Unknowns<4> x = equations.solve();
  if (x[2] > 0) likely.add(constants_of(1 - x[1], x[0], x[2]));
  if (found != nullptr) *found = x[2];
  return {};
}

Result<void> fit_adam(const SampledStep& sample, Scratch& scratch, LikelyConstants& likely) {
  double epsilon = 0;
  BITSNAP_TRY(add_adam(sample, 0, scratch, likely, &epsilon));
  if (epsilon > 0) BITSNAP_TRY(add_adam(sample, epsilon, scratch, likely));
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(auto equations, Equations<2>::make(sample.elements.size(), scratch));
  for (std::size_t i = 0; i < sample.elements.size(); ++i) {
    const Moved of = moved_at(sample, i);
    const double root = std::sqrt(of.second);
    equations.add({-of.first, -of.base * root}, of.change() * root, 1 / (root * of.size()));
  }
  const Unknowns<2> x = equations.solve();
  likely.add(constants_of(1 - x[1], x[0], kLeastEpsilon));
  BITSNAP_ASSIGN(const double unmoved, fit_decay(sample, scratch));
  likely.add(constants_of(1 - unmoved, x[0], epsilon > 0 ? epsilon : kLeastEpsilon));
  return {};
}

Result<void> fit_momentum(const SampledStep& sample, Scratch& scratch, LikelyConstants& likely) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(auto equations, Equations<2>::make(sample.elements.size(), scratch));
  for (std::size_t i = 0; i < sample.elements.size(); ++i) {
    const Moved of = moved_at(sample, i);
    equations.add({-of.first, -of.base}, of.change(), 1 / of.size());
  }
  const Unknowns<2> x = equations.solve();
  likely.add(constants_of(1 - x[1], x[0], 0));
  return {};
}

}  // namespace

std::optional<double> stated(double number, int digits) {
  // The wider the interval, the less does it mean to be in it.
  constexpr double kNear[] = {0.2, 0.02, 2e-3};
  if (!(number > 1e-9 && number < 1)) return std::nullopt;
  double least = 1;
  for (int digit = 1; digit < digits; ++digit) least *= 10;
  double unit = 1;  // exact powers of ten, so the quotient is correctly rounded
  while (number * unit < least) unit *= 10;
  const double near = std::round(number * unit) / unit;
  if (std::abs(near - number) > kNear[digits - 1] * number) return std::nullopt;
  return near;
}

std::optional<double> stated_rate(double rate, int digits) {
  if (rate >= 0) return stated(rate, digits);
  const std::optional<double> near = stated(reversed_rate(rate), digits);
  return near ? std::optional(reversed_rate(*near)) : std::nullopt;
}

Result<LikelyConstants> fit_step(StepForm form, const SampledStep& sample, Scratch& scratch) {
  LikelyConstants likely;
  switch (form) {
    case StepForm::second_moment:
    case StepForm::rounded_second_moment: BITSNAP_TRY(fit_second_moment(sample, scratch, likely)); break;
    case StepForm::adam:
    case StepForm::rounded_adam: BITSNAP_TRY(fit_adam(sample, scratch, likely)); break;
    case StepForm::momentum: BITSNAP_TRY(fit_momentum(sample, scratch, likely)); break;
  }
  return likely;
}

}  // namespace bitsnap::codec
