// An element x' with the equation x' = a - s t, rounded, says that s lies between (a - high) / t and (a - low) / t,
// where x' is what numbers from `low` to `high` are rounded to. Of a step with the right other constants, nearly all
// elements agree on an interval, which is narrower the more elements there are.
#include "codec/optimizer_step/fit_rounded_step_encode.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>

#include "base/try.hpp"

namespace bitsnap::codec {
namespace {

// What people choose. The most usual ones come first.
constexpr double kUsualBeta1[] = {0.9, 0.95, 0.8, 0.85, 0.98, 0.99};
constexpr double kUsualBeta2[] = {0.999, 0.95, 0.99, 0.98, 0.995, 0.97, 0.9, 0.9995, 0.9999};
constexpr double kUsualEpsilons[] = {1e-8, 1e-30, 1e-6, 1e-5};

// If no interval contains what all elements say, one in so many of them may disagree with it.
constexpr std::size_t kPerDissenter[] = {128, 16};

// Constants that people are less likely to choose must be nearer by one bit in this many elements.
constexpr std::size_t kLessUsualPerBit = 128;
constexpr std::size_t kUnusualPerBit = 32;

// Other constants are tried if the prediction is away by more than one bit in this many elements.
constexpr std::size_t kForwardPerBit = 2;
constexpr std::size_t kMomentsPerBit = 1;
constexpr std::size_t kParametersPerBit = 4;

float rounded_to_bf16(float x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::isnan(x) ? x : std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

struct Interval {
  double low = 0;
  double high = 0;
};

// The numbers that are rounded to a finite BF16.
Interval numbers_rounded_to(float element) noexcept {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(element) & 0x7fffffff;
  const auto number = [](std::uint32_t bits) { return static_cast<double>(std::bit_cast<float>(bits)); };
  const double high = number(magnitude + 0x8000);
  const double low = magnitude == 0 ? -high : number(magnitude - 0x8000);
  return std::signbit(element) ? Interval{-high, -low} : Interval{low, high};
}

// What elements say about one constant.
class Opinions {
 public:
  static Result<Opinions> make(std::size_t elements, Scratch& scratch) {
    Opinions opinions;
    BITSNAP_ASSIGN(opinions.lows_, scratch.take_array<double>(elements));
    BITSNAP_ASSIGN(opinions.highs_, scratch.take_array<double>(elements));
    return opinions;
  }

  void clear() noexcept { size_ = 0; }

  // element = start + constant * factor, rounded.
  void add(float element, double start, double factor) noexcept {
    if (!std::isfinite(element) || !std::isfinite(start) || !std::isfinite(factor) || factor == 0) return;
    const Interval range = numbers_rounded_to(element);
    const double one = (range.low - start) / factor;
    const double other = (range.high - start) / factor;
    if (!std::isfinite(one) || !std::isfinite(other)) return;
    lows_[size_] = std::min(one, other);
    highs_[size_++] = std::max(one, other);
  }

  // The middle of the interval that most elements agree on.
  [[nodiscard]] std::optional<double> agreed() noexcept {
    if (size_ == 0) return std::nullopt;
    const auto lows = lows_.first(size_);
    const auto highs = highs_.first(size_);
    double low = *std::ranges::max_element(lows);
    double high = *std::ranges::min_element(highs);
    for (const std::size_t per_dissenter : kPerDissenter) {
      if (low <= high) break;
      const std::size_t dissenters = size_ / per_dissenter;
      const auto place = static_cast<std::ptrdiff_t>(dissenters);
      std::ranges::nth_element(lows, lows.begin() + place, std::greater());
      std::ranges::nth_element(highs, highs.begin() + place);
      low = lows[dissenters];
      high = highs[dissenters];
    }
    return low + (high - low) / 2;
  }

 private:
  std::span<double> lows_;
  std::span<double> highs_;
  std::size_t size_ = 0;
};

class RoundedFit {
 public:
  static Result<RoundedFit> make(StepForm form, const StepSample& sample, const SampledStep& floats, Scratch& scratch) {
    BITSNAP_ASSIGN(const StepTrial trial, StepTrial::make(sample, scratch));
    BITSNAP_ASSIGN(const Opinions opinions, Opinions::make(sample.elements(), scratch));
    return RoundedFit(form, floats, trial, opinions);
  }

  [[nodiscard]] Result<FittedConstants> second_moment(const std::optional<StepConstants>& start, Scratch& scratch) {
    if (start) {
      offer(*start);
    } else {
      search_betas();
      if (is_far(kMomentsPerBit)) BITSNAP_TRY(offer_squares(StepForm::second_moment, scratch));
      return *best_;
    }
    // Keeping and adding determine each other.
    for (int round = 0; round < 2; ++round) {
      const std::size_t before = best_->bits_away;
      const std::optional<double> gain = agreed_gain();
      if (!gain) break;
      const std::size_t elements = floats_.elements.size();
      if (const auto usual = stated_rate(*gain, 1)) offer_gain(*usual, 0);
      if (const auto usual = stated_rate(*gain, 3)) offer_gain(*usual, elements / kLessUsualPerBit);
      offer_gain(*gain, elements / kUnusualPerBit);
      if (best_->bits_away == before) break;
    }
    return *best_;
  }

  [[nodiscard]] Result<FittedConstants> parameter(const std::optional<StepConstants>& start, Scratch& scratch) {
    if (start) {
      offer(*start);
      offer_step(*start);
    } else if (has_root()) {
      for (const double epsilon : kUsualEpsilons) {
        offer_step({.keep = 1, .step = 0, .other = static_cast<float>(epsilon)});
        if (best_ && best_->bits_away == 0) break;
      }
    } else {
      offer_step({});
    }
    offer({});
    if (!start && is_far(kParametersPerBit)) {
      BITSNAP_TRY(offer_squares(has_root() ? StepForm::adam : StepForm::momentum, scratch));
    }
    if (best_->bits_away > 0) {
      offer_keep();
      offer_step(best_->constants);
    }
    return *best_;
  }

 private:
  RoundedFit(StepForm form, const SampledStep& floats, const StepTrial& trial, const Opinions& opinions) noexcept
      : form_(form), floats_(floats), trial_(trial), opinions_(opinions) {}

  [[nodiscard]] bool has_root() const noexcept { return form_ != StepForm::momentum; }

  [[nodiscard]] bool is_far(std::size_t elements_per_bit) const noexcept {
    return !best_ || best_->bits_away * elements_per_bit > floats_.elements.size();
  }

  void offer(const StepConstants& constants, std::size_t handicap = 0) noexcept {
    const std::size_t away = trial_.bits_away(form_, constants);
    if (!best_ || away + handicap < best_->bits_away) best_ = FittedConstants{constants, away};
  }

  // By least squares, as for F32.
  Result<void> offer_squares(StepForm form, Scratch& scratch) {
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const LikelyConstants likely, fit_step(form, floats_, scratch));
    for (const StepConstants& constants : likely) offer(constants, floats_.elements.size() / kUnusualPerBit);
    return {};
  }

  void offer_betas(double beta1, double beta2, bool is_back) noexcept {
    if (is_back) {
      beta1 = 1 / beta1;
      beta2 = 1 / beta2;
    }
    offer({.keep = static_cast<float>(beta2),
           .step = static_cast<float>(1 - beta2),
           .other = static_cast<float>(1 - beta1)});
  }

  // All pairs, because one beta can make up for the other in part.
  void search_betas() noexcept {
    for (const bool is_back : {false, true}) {
      if (is_back && !is_far(kForwardPerBit)) break;
      for (const double beta1 : kUsualBeta1) {
        for (const double beta2 : kUsualBeta2) offer_betas(beta1, beta2, is_back);
      }
    }
  }

  void offer_gain(double gain, std::size_t handicap) noexcept {
    const auto step = static_cast<float>(gain);
    offer({.keep = static_cast<float>(1 - gain), .step = step, .other = best_->constants.other}, handicap);
  }

  // The step of the second moment, with the other constants as they are.
  std::optional<double> agreed_gain() noexcept {
    const auto [keep, step, rate, divisor] = best_->constants;
    opinions_.clear();
    for (std::size_t i = 0; i < floats_.elements.size(); ++i) {
      const float moment = floats_.first[i];
      const float gradient = rounded_to_bf16((floats_.second[i] - moment) / rate + moment);
      opinions_.add(floats_.elements[i], kept(i, keep), static_cast<double>(gradient) * static_cast<double>(gradient));
    }
    return opinions_.agreed();
  }

  [[nodiscard]] bool rounds_each() const noexcept {
    return form_ == StepForm::rounded_second_moment || form_ == StepForm::rounded_adam;
  }

  [[nodiscard]] double kept(std::size_t i, float keep) const noexcept {
    const float product = floats_.base[i] * keep;
    return static_cast<double>(rounds_each() ? rounded_to_bf16(product) : product);
  }

  // Of a parameter: what is multiplied by the step.
  [[nodiscard]] double direction(std::size_t i, const StepConstants& constants) const noexcept {
    if (!has_root()) return static_cast<double>(floats_.first[i]);
    float root = std::sqrt(floats_.second[i]);
    if (rounds_each()) {
      root = rounded_to_bf16(rounded_to_bf16(rounded_to_bf16(root) / constants.divisor) + constants.other);
    } else {
      root += constants.other;
    }
    return static_cast<double>(floats_.first[i]) / static_cast<double>(root);
  }

  void offer_step(StepConstants constants) noexcept {
    opinions_.clear();
    for (std::size_t i = 0; i < floats_.elements.size(); ++i) {
      opinions_.add(floats_.elements[i], kept(i, constants.keep), -direction(i, constants));
    }
    if (const auto step = opinions_.agreed()) {
      constants.step = static_cast<float>(*step);
      offer(constants);
    }
  }

  void offer_keep() noexcept {
    StepConstants constants = best_->constants;
    opinions_.clear();
    for (std::size_t i = 0; i < floats_.elements.size(); ++i) {
      opinions_.add(floats_.elements[i], -static_cast<double>(constants.step) * direction(i, constants),
                    static_cast<double>(floats_.base[i]));
    }
    if (const auto keep = opinions_.agreed()) {
      constants.keep = static_cast<float>(*keep);
      offer(constants);
    }
  }

  StepForm form_;
  SampledStep floats_;
  StepTrial trial_;
  Opinions opinions_;
  std::optional<FittedConstants> best_;
};

}  // namespace

Result<FittedConstants> fit_rounded_step(StepForm form, const StepSample& sample, const SampledStep& floats,
                                         const std::optional<StepConstants>& start, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(RoundedFit fit, RoundedFit::make(form, sample, floats, scratch));
  const bool is_square = form == StepForm::second_moment || form == StepForm::rounded_second_moment;
  return is_square ? fit.second_moment(start, scratch) : fit.parameter(start, scratch);
}

}  // namespace bitsnap::codec
