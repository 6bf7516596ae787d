// An element is y = k x + f q, with a base x, a number q of few significant bits, and unknown constants k and f.
//
// Where the base is small, y - k x is known well enough from a guess of k to see that all of these differences are
// multiples of one number: search_factor(). Rounded to multiples, they give the q of these elements, and least squares
// gives k and f (refine()). That gives the q of other elements, and so on. The operations of the optimizer, and the
// last bits of the constants, are those with which most elements follow exactly: choose_operations().
#include "codec/gradient_step/fit_gradient_encode.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/cpu_dispatch.hpp"
#include "base/try.hpp"
#include "codec/gradient_step/gradient_encode_kernel.hpp"

namespace bitsnap::codec {
namespace {

constexpr std::size_t kSearched = 64;  // elements that are searched for a common factor
constexpr std::size_t kFewestSearched = 16;
constexpr std::size_t kRefined = 512;  // elements that determine the constants
constexpr std::size_t kFewest = 3;     // one in so many elements has to follow exactly from numbers of few bits
constexpr std::size_t kRare = 32;      // one in so many elements may need more bits than the others

// A multiple of the common number has to save one bit in this many.
constexpr std::size_t kPerMultipleGain = 64;

// An element's base is small if its share of the difference is this many times smaller than the median.
constexpr float kSmallBase = 64;

// Significant bits of the numbers: bf16, the sums of a few of them and fp16, and the most that are worth storing.
constexpr unsigned kBf16Bits = 8;
constexpr unsigned kSumBits = 12;
constexpr unsigned kFp16Bits = 11;

// Units from a number within which elements count, while the constants become more precise: most of the elements whose
// numbers have more bits are further away.
constexpr double kCertain[] = {0.3, 0.1, 0.03};
// The same as shares of the number, at last: rounding errors are below.
constexpr double kExact[] = {0x1p-16, 0x1p-18};

// A guess of k. If it is exact, any elements can be searched. Numbers of more bits are searched with the commonest.
struct Guess {
  double keep = 0;
  bool is_exact = false;
  bool is_common = false;
};
// Betas of first moments and momentum; then something near other betas, and near what parameters keep.
constexpr std::array<Guess, 6> kGuesses{
    {{0.9, true, true}, {0.95, true, true}, {1, false}, {0.9, false}, {0.8, true}, {0.99, true}}};

// y = keep * x + factor * q, with q of `bits` significant bits.
struct Line {
  double keep = 0;
  double factor = 0;
  unsigned bits = 0;
};

// A number rounded to significant bits, to nearest.
double rounded(double number, unsigned bits) noexcept {
  const std::uint64_t half = std::uint64_t{1} << (52 - bits);
  const std::uint64_t mask = ~((half << 1) - 1);
  const auto as_bits = std::bit_cast<std::uint64_t>(number);
  return std::isfinite(number) ? std::bit_cast<double>((as_bits + half) & mask) : 0;
}

float mantissa_of(float number) noexcept {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(number) & 0x007fffff) | 0x3f800000);
}

// The elements whose bases are small, and their differences from what the guess keeps of the bases.
struct Searched {
  std::array<std::size_t, kSearched> places;
  std::array<float, kSearched> mantissas;
  std::size_t size = 0;
};

// Elements from everywhere, of whose differences enough bits are known if the guess is exact.
Searched elements_from_everywhere(const SampledMoves& sample, double keep) noexcept {
  constexpr float kMostShare = 32;
  const auto kept = static_cast<float>(keep);
  Searched found;
  Places places(sample.size());
  for (std::size_t n = 0; n < std::min(sample.size(), 2 * kSearched) && found.size < kSearched; ++n) {
    const std::size_t i = places.next();
    const float difference = sample.elements[i] - kept * sample.base[i];
    if (!(std::abs(sample.base[i]) <= kMostShare * std::abs(difference)) || !std::isnormal(difference)) continue;
    found.places[found.size] = i;
    found.mantissas[found.size++] = mantissa_of(difference);
  }
  return found;
}

Searched elements_with_small_bases(const SampledMoves& sample, double keep) noexcept {
  const auto kept = static_cast<float>(keep);
  const auto share = [&](std::size_t i) {
    const float difference = sample.elements[i] - kept * sample.base[i];
    const float quotient = std::abs(sample.base[i]) / std::abs(difference);
    return quotient >= 0 ? quotient : 0;  // without NaNs, which cannot be sorted
  };
  constexpr std::size_t kAsked = 63;
  std::array<float, kAsked> shares;
  for (std::size_t i = 0; i < kAsked; ++i) shares[i] = share(i * sample.size() / kAsked);
  std::ranges::nth_element(shares, shares.begin() + kAsked / 2);
  const float most = shares[kAsked / 2] / kSmallBase;
  Searched found;
  Places places(sample.size());
  for (std::size_t n = 0; n < sample.size() && found.size < kSearched; ++n) {
    const std::size_t i = places.next();
    const float difference = sample.elements[i] - kept * sample.base[i];
    if (!(std::abs(sample.base[i]) <= most * std::abs(difference)) || !std::isnormal(difference)) continue;
    found.places[found.size] = i;
    found.mantissas[found.size++] = mantissa_of(difference);
  }
  return found;
}

// The mantissa of the number of which most differences are multiples of so many bits; 0 if there is none.
double search_factor(const Searched& searched, unsigned bits) noexcept {
  // By chance, a wrong number has a quarter of the multiples, and the best of all candidates about half.
  constexpr float kTolerance = 0.125F;
  constexpr std::size_t kReferences = 3;
  const auto units = 1U << (bits - 1);
  const std::size_t size = searched.size;
  std::size_t most = size * 5 / 8;
  double factor = 0;
  for (std::size_t reference = 0; reference < kReferences && factor == 0; ++reference) {
    const float mantissa = searched.mantissas[reference];
    const MultiplesFound found = kernels<GradientEncodeKernels>().search_multiples(
        searched.mantissas.data(), size, {.reference = mantissa, .units = units, .tolerance = kTolerance});
    if (found.multiples <= most) continue;
    most = found.multiples;
    factor = static_cast<double>(mantissa) * units / found.k;
  }
  return factor;
}

// Any constants explain these, for example the embeddings of tokens that did not occur.
bool is_without_gradient(double difference, double element) noexcept {
  constexpr double kRoundingErrors = 0x1p-20;
  return std::abs(difference) <= kRoundingErrors * std::abs(element);
}

// Solves for factor, and for keep if `solves_keep`, from the elements at these places that are within a share of a unit
// of a number. Returns false if they do not determine both, or if fewer than half of the elements are near numbers.
template <typename PlaceOf>
bool refine(const SampledMoves& sample, std::size_t count, const PlaceOf& place_of, double within, bool solves_keep,
            Line& line) noexcept {
  constexpr double kNearUnit = 0.125;
  constexpr double kMostShare = 16;
  std::size_t near = 0;
  std::size_t unmoved = 0;
  const double units = std::ldexp(1.0, 1 - static_cast<int>(line.bits));
  double xx = 0;
  double xq = 0;
  double qq = 0;
  double xy = 0;
  double qy = 0;
  for (std::size_t n = 0; n < count; ++n) {
    const std::size_t i = place_of(n);
    const auto x = static_cast<double>(sample.base[i]);
    const auto y = static_cast<double>(sample.elements[i]);
    const double exact = (y - line.keep * x) / line.factor;
    if (is_without_gradient(exact * line.factor, y)) {
      ++unmoved;
      continue;
    }
    const double number = rounded(exact, line.bits);
    const double unit = std::abs(number) * units;  // to twice as much
    const double off = std::abs(exact - number);
    near += off < kNearUnit * unit ? 1 : 0;
    if (!(off < within * unit) || y == 0) continue;
    // Rows with much larger gradients than others must not decide alone: theirs may be the sums that have more bits.
    const double weight = 1 / std::max({std::abs(y), std::abs(x), kMostShare * std::abs(number * line.factor)});
    const double wx = x * weight;
    const double wq = number * line.factor * weight;
    const double wy = y * weight;
    xx += wx * wx;
    xq += wx * wq;
    qq += wq * wq;
    xy += wx * wy;
    qy += wq * wy;
  }
  const double determinant = xx * qq - xq * xq;
  if (!(determinant > 0) || 2 * near < count - unmoved) return false;
  const double keep = solves_keep ? (xy * qq - qy * xq) / determinant : line.keep;
  const double share = (qy - keep * xq) / qq;
  if (!(share > 0.5 && share < 2)) return false;
  line.keep = keep;
  line.factor *= share;
  return true;
}

std::optional<Line> find_line(const SampledMoves& sample) noexcept {
  for (const Guess& guess : kGuesses) {
    const Searched searched =
        guess.is_exact ? elements_from_everywhere(sample, guess.keep) : elements_with_small_bases(sample, guess.keep);
    if (searched.size < kFewestSearched) continue;
    for (const unsigned bits : {kBf16Bits, kSumBits}) {
      if (bits == kSumBits && !guess.is_common) continue;
      Line line{.keep = guess.keep, .factor = search_factor(searched, bits), .bits = bits};
      if (line.factor == 0) continue;
      const auto searched_place = [&](std::size_t n) { return searched.places[n]; };
      if (!refine(sample, searched.size, searched_place, kCertain[0], !guess.is_exact, line)) continue;
      const std::size_t refined = std::min(kRefined, sample.size());
      const auto spread = [&](std::size_t n) { return n * sample.size() / refined; };
      const auto refine_within = [&](double within) {
        return refine(sample, refined, spread, within, !guess.is_exact, line);
      };
      if (!std::ranges::all_of(kCertain, refine_within)) continue;
      const double per_share = std::ldexp(1.0, static_cast<int>(bits) - 1);
      if (std::ranges::all_of(kExact, [&](double share) { return refine_within(share * per_share); })) return line;
    }
  }
  return std::nullopt;
}

// Tries operations and constants on some elements, and keeps the best.
class Trials {
 public:
  Trials(const SampledMoves& sample, unsigned bits, std::span<float> numbers) noexcept
      : sample_(sample), bits_(bits), numbers_(numbers) {}

  [[nodiscard]] bool is_enough() const noexcept { return best_.exact * kRare >= sample_.size() * (kRare - 1); }
  [[nodiscard]] const FoundGradient& best() const noexcept { return best_; }

  // Climbs over neighbouring floats of one constant to the peak.
  void climb(GradientForm form, GradientConstants constants, float GradientConstants::* varied) {
    std::size_t peak = exact_with(form, constants);
    if (peak * kFarFromPeak < sample_.size()) return;
    for (const int direction : {1, -1}) {
      constexpr int kFarthest = 8;
      int beyond = 0;  // steps since the peak
      GradientConstants next = constants;
      for (int step = 1; step <= kFarthest && beyond < 2; ++step, ++beyond) {
        next.*varied = stepped(next.*varied, direction);
        const std::size_t exact = exact_with(form, next);
        if (exact <= peak) continue;
        peak = exact;
        constants = next;
        beyond = -1;
      }
    }
  }

  std::size_t exact_with(GradientForm form, const GradientConstants& constants) {
    if (!(std::isnormal(constants.gain) && std::isnormal(constants.scale))) return 0;
    const std::size_t exact = kernels<GradientEncodeKernels>().find(
        form, reinterpret_cast<const std::uint8_t*>(sample_.elements.data()),
        reinterpret_cast<const std::uint8_t*>(sample_.base.data()), sample_.size(), constants, bits_,
        reinterpret_cast<std::uint8_t*>(numbers_.data()));
    if (exact > best_.exact) best_ = {form, constants, bits_, sample_.size(), exact};
    return exact;
  }

 private:
  static constexpr std::size_t kFarFromPeak = 4;

  const SampledMoves sample_;
  const unsigned bits_;
  const std::span<float> numbers_;
  FoundGradient best_;
};

}  // namespace

float stepped(float number, int steps) noexcept {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(number) + static_cast<std::uint32_t>(steps));
}

std::optional<double> stated_rate(double rate) noexcept {
  constexpr double kNear = 1e-4;
  if (!(rate > 1e-6 && rate < 1)) return std::nullopt;
  double unit = 1;  // exact powers of ten, so the quotient is correctly rounded
  while (rate * unit < 100) unit *= 10;
  const double near = std::round(rate * unit) / unit;
  if (std::abs(near - rate) > kNear * rate) return std::nullopt;
  return near;
}

namespace {

// A power of two times the number, from 1 to 2.
double to_mantissa(double number) noexcept {
  int exponent = 0;
  return 2 * std::frexp(number, &exponent);
}

float gradient_scale(double factor, double gain) noexcept {
  const auto scale = static_cast<float>(to_mantissa(std::abs(factor / gain)));
  return scale >= 2 ? scale / 2 : scale;
}

void choose_operations(const Line& line, Trials& trials) {
  if (const auto rate = stated_rate(1 - line.keep)) {
    const auto gain = static_cast<float>(*rate);
    const auto keep = static_cast<float>(1 - *rate);
    constexpr GradientForm kForms[] = {GradientForm::lerp_fused, GradientForm::add_fused, GradientForm::lerp,
                                       GradientForm::decay_fused, GradientForm::decay_and_add};
    for (const GradientForm form : kForms) {
      trials.climb(form, {keep, gain, gradient_scale(line.factor, static_cast<double>(gain))},
                   &GradientConstants::scale);
      if (trials.is_enough()) return;
    }
    // Momentum: the gradient is added as it is.
    trials.climb(GradientForm::add_fused, {keep, 1, gradient_scale(line.factor, 1)}, &GradientConstants::scale);
    if (trials.is_enough()) return;
  }
  // An update of parameters: the number itself times the learning rate.
  const auto gain = static_cast<float>(to_mantissa(line.factor));
  const auto keep = static_cast<float>(line.keep);
  for (const GradientForm form : {GradientForm::add_fused, GradientForm::decay_and_add}) {
    for (const int steps : {0, 1, -1}) {
      trials.climb(form, {stepped(keep, steps), gain, 1}, &GradientConstants::gain);
      if (trials.is_enough()) return;
    }
  }
}

// A step changes nearly all elements. Where few changed, for example in some bits, codecs for changes are smaller.
bool is_mostly_unchanged(const SampledMoves& sample) noexcept {
  constexpr std::size_t kAsked = 64;
  constexpr std::size_t kMostUnchanged = 8;
  const std::size_t asked = std::min(kAsked, sample.size());
  std::size_t unchanged = 0;
  for (std::size_t n = 0; n < asked; ++n) {
    const std::size_t i = n * sample.size() / asked;
    if (sample.elements[i] == sample.base[i] && sample.base[i] != 0) ++unchanged;
  }
  return unchanged > kMostUnchanged;
}

// Elements that tell constants apart.
Result<SampledMoves> take_tried(const SampledMoves& sample, const Line& line, Scratch& scratch) {
  BITSNAP_ASSIGN(const std::span<float> elements, scratch.take_array<float>(std::min(kRefined, sample.size())));
  BITSNAP_ASSIGN(const std::span<float> base, scratch.take_array<float>(elements.size()));
  std::size_t taken = 0;
  Places places(sample.size());
  for (std::size_t n = 0; n < sample.size() && taken < elements.size(); ++n) {
    const std::size_t i = places.next();
    const auto y = static_cast<double>(sample.elements[i]);
    if (is_without_gradient(y - line.keep * static_cast<double>(sample.base[i]), y)) continue;
    elements[taken] = sample.elements[i];
    base[taken++] = sample.base[i];
  }
  return SampledMoves{elements.first(taken), base.first(taken)};
}

// The significant bits of all numbers, and a whole float for each element that does not follow.
std::size_t bits_with(const SampledMoves& tried, const FoundGradient& found, std::span<float> numbers) noexcept {
  constexpr std::size_t kWhole = 32;
  const std::size_t exact = kernels<GradientEncodeKernels>().find_shortest(
      found.form, reinterpret_cast<const std::uint8_t*>(tried.elements.data()),
      reinterpret_cast<const std::uint8_t*>(tried.base.data()), tried.size(), found.constants,
      reinterpret_cast<std::uint8_t*>(numbers.data()));
  std::size_t bits = (tried.size() - exact) * kWhole;
  for (const float number : numbers) {
    bits += kWhole - static_cast<std::size_t>(std::countr_zero(std::bit_cast<std::uint32_t>(number) | 1U << 31));
  }
  return bits;
}

// Numbers of many bits may be multiples of three or five of the common number, which was found for most of them only.
// Each round finds one such factor.
void shorten_numbers(const SampledMoves& tried, FoundGradient& found, std::span<float> numbers) noexcept {
  constexpr double kMultiples[] = {3, 5, 1.0 / 3, 1.0 / 5};
  constexpr int kFarthest = 2;
  constexpr std::size_t kFew = 256;
  constexpr int kMostRounds = 3;
  const SampledMoves few =
      tried.size() > kFew ? SampledMoves{tried.elements.first(kFew), tried.base.first(kFew)} : tried;
  numbers = numbers.first(few.size());
  std::size_t least = bits_with(few, found, numbers);
  for (int round = 0; round < kMostRounds; ++round) {
    const float first = found.constants.scale;
    std::size_t enough = least - least / kPerMultipleGain;
    for (const double multiple : kMultiples) {
      const auto nearest = static_cast<float>(to_mantissa(static_cast<double>(first) * multiple));
      for (int steps = -kFarthest; steps <= kFarthest; ++steps) {
        FoundGradient other = found;
        other.constants.scale = stepped(nearest, steps);
        const std::size_t bits = bits_with(few, other, numbers);
        if (bits >= enough) continue;
        least = enough = bits;
        found.constants = other.constants;
      }
    }
    if (found.constants.scale == first) return;
  }
}

}  // namespace

Result<std::optional<FoundGradient>> fit_gradient(const SampledMoves& sample, Scratch& scratch) {
  if (sample.size() < kFewestSearched || is_mostly_unchanged(sample)) return std::nullopt;
  const std::optional<Line> line = find_line(sample);
  if (!line) return std::nullopt;
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const SampledMoves tried, take_tried(sample, *line, scratch));
  BITSNAP_ASSIGN(const std::span<float> numbers, scratch.take_array<float>(tried.size()));
  Trials trials(tried, line->bits, numbers);
  choose_operations(*line, trials);
  FoundGradient found = trials.best();
  if (found.exact * kFewest < found.sampled || found.sampled == 0) return std::nullopt;
  for (const unsigned bits : {kBf16Bits, kFp16Bits}) {
    Trials of_bits(tried, bits, numbers);
    if (of_bits.exact_with(found.form, found.constants) * kRare < tried.size() * (kRare - 1)) continue;
    found.bits = bits;
    return found;
  }
  found.bits = 0;
  shorten_numbers(tried, found, numbers);
  return found;
}

}  // namespace bitsnap::codec
