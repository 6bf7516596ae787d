// Loops that compilers vectorize at each CPU level.

#include "codec/gradient_step/gradient_encode_kernel.hpp"

#include "codec/gradient_step/gradient_arithmetic.hpp"

namespace bitsnap::codec {
namespace {

// The reverse of moved(), in about the same precision: the number, and how much a change of the element changes it.
struct Inverse {
  float keep;
  float per_change;
  float per_base;  // of lerp: what the base adds
};

template <GradientForm kForm>
inline Inverse inverse_of(const GradientConstants& constants) noexcept {
  constexpr bool kIsLerp = kForm == GradientForm::lerp_fused || kForm == GradientForm::lerp;
  const float per_change = 1 / (constants.gain * constants.scale);
  return {kIsLerp ? 1 : constants.keep, per_change, kIsLerp ? 1 / constants.scale : 0};
}

template <GradientForm kForm>
inline float number_between(float x, float element, const Inverse& inverse) noexcept {
  constexpr bool kIsLerp = kForm == GradientForm::lerp_fused || kForm == GradientForm::lerp;
  if constexpr (kIsLerp) return (element - x) * inverse.per_change + x * inverse.per_base;
  return (element - inverse.keep * x) * inverse.per_change;
}

// Returns how many elements follow exactly from the rounded numbers.
template <GradientForm kForm>
inline std::uint32_t find_at_once(const std::uint8_t* elements, const std::uint8_t* base, std::size_t count,
                                  const GradientConstants& constants, const Inverse& inverse, const Rounding& rounding,
                                  std::uint8_t* __restrict numbers) noexcept {
  std::uint32_t exact = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = load_at<float>(base, i);
    const auto element = load_at<float>(elements, i);
    const float number = rounding.of(number_between<kForm>(x, element, inverse));
    store_at(numbers, i, bits_of(number));
    exact += moved_bits<kForm>(x, number, constants) == bits_of(element) ? 1U : 0U;
  }
  return exact;
}

// The same with a second try for elements that are off: their distance says how far the number is off.
template <GradientForm kForm>
inline std::uint32_t find_again(const std::uint8_t* elements, const std::uint8_t* base, std::size_t count,
                                const GradientConstants& constants, const Inverse& inverse, const Rounding& rounding,
                                std::uint8_t* __restrict numbers) noexcept {
  std::uint32_t exact = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = load_at<float>(base, i);
    const auto element = load_at<float>(elements, i);
    const float first = rounding.of(number_between<kForm>(x, element, inverse));
    const std::uint32_t from_first = moved_bits<kForm>(x, first, constants);
    const float off = element - float_of(from_first);
    const float second = rounding.of(first + off * inverse.per_change);
    const std::uint32_t from_second = moved_bits<kForm>(x, second, constants);
    const std::uint32_t wanted = bits_of(element);
    const std::uint32_t takes_second = mask_of(from_first != wanted) & mask_of(from_second == wanted);
    store_at(numbers, i, (bits_of(first) & ~takes_second) | (bits_of(second) & takes_second));
    exact += (from_first == wanted || from_second == wanted) ? 1 : 0;
  }
  return exact;
}

template <GradientForm kForm>
inline std::size_t find_as(const std::uint8_t* elements, const std::uint8_t* base, std::size_t count,
                           const GradientConstants& constants, unsigned bits, std::uint8_t* numbers) noexcept {
  constexpr std::size_t kTogether = 256;  // few enough that most of these need no second try
  const Inverse inverse = inverse_of<kForm>(constants);
  const Rounding rounding(bits);
  std::size_t exact = 0;
  for (std::size_t first = 0; first < count; first += kTogether) {
    const std::size_t size = count - first < kTogether ? count - first : kTogether;
    const std::size_t at = first * sizeof(float);
    std::uint32_t found =
        find_at_once<kForm>(elements + at, base + at, size, constants, inverse, rounding, numbers + at);
    if (found < size) {
      found = find_again<kForm>(elements + at, base + at, size, constants, inverse, rounding, numbers + at);
    }
    exact += found;
  }
  return exact;
}

// Of an element, in ULPs. Half of one would find all numbers from which the element follows if nothing else were
// rounded; more finds shorter ones, of which nearly all are right.
constexpr float kReach = 0.6875F;

// Of all numbers up to `reach` away, the one that ends in the most zeros. Precondition: neither is a NaN.
inline float shortest_near(float number, float reach) noexcept {
  const std::uint32_t one = bits_of(number - reach);
  const std::uint32_t other = bits_of(number + reach);
  // Bits of floats with equal signs order as their magnitudes.
  const std::uint32_t low = one < other ? one : other;
  const std::uint32_t high = one < other ? other : one;
  std::uint32_t below = low ^ high;
  below |= below >> 1;
  below |= below >> 2;
  below |= below >> 4;
  below |= below >> 8;
  below |= below >> 16;
  // The highest bit in which they differ is set in `high`, and what follows it is cleared. With different signs, 0.
  const std::uint32_t shortest = high & ~(below >> 1);
  return float_of((low ^ high) >> 31 != 0 ? 0 : shortest);
}

// A part of the elements, and those of them that do not follow from the short numbers.
constexpr std::size_t kShortestTogether = 512;

struct Unexplained {
  std::uint32_t places[kShortestTogether];
  float base[kShortestTogether];
  float elements[kShortestTogether];
  std::uint32_t numbers[kShortestTogether];
  std::size_t count = 0;
};

// Writes for each element the shortest number near enough, and whether the element does not follow from it.
template <GradientForm kForm>
inline void find_short_numbers(const std::uint8_t* elements, const std::uint8_t* base, std::size_t count,
                               const GradientConstants& constants, const Inverse& inverse,
                               std::uint8_t* __restrict numbers, std::uint8_t* __restrict is_off) noexcept {
  const float per_change = inverse.per_change < 0 ? -inverse.per_change : inverse.per_change;
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = load_at<float>(base, i);
    const auto element = load_at<float>(elements, i);
    const std::uint32_t wanted = bits_of(element);
    const float middle = number_between<kForm>(x, element, inverse);
    const float ulp = float_of((wanted & kInfinityBits) > (23U << 23) ? (wanted & kInfinityBits) - (23U << 23) : 1);
    // What the operations of number_between() may have lost.
    const float slack = (middle < 0 ? -middle : middle) * 0x1p-23F;
    const float tried = shortest_near(middle, ulp * kReach * per_change + slack);
    const std::uint32_t is_number = mask_of((bits_of(tried) & kInfinityBits) != kInfinityBits);
    store_at(numbers, i, bits_of(tried) & is_number);
    is_off[i] = moved_bits<kForm>(x, tried, constants) == wanted ? 0 : 1;
  }
}

// Where the base nearly cancels the gradient, only a few neighbouring numbers give the element. Returns how many
// elements follow from one of them; the numbers of the others stay.
template <GradientForm kForm>
inline std::uint32_t find_long_numbers(const GradientConstants& constants, Unexplained& left) noexcept {
  constexpr std::uint32_t kSteps[] = {0U, 1U, ~0U};
  constexpr bool kIsLerp = kForm == GradientForm::lerp_fused || kForm == GradientForm::lerp;
  const double keep = kIsLerp ? 1 : static_cast<double>(constants.keep);
  const double per_base = kIsLerp ? 1 : 0;
  const auto gain = static_cast<double>(constants.gain);
  const auto scale = static_cast<double>(constants.scale);
  std::uint32_t exact = 0;
  for (std::size_t i = 0; i < left.count; ++i) {
    const float x = left.base[i];
    const auto wide = static_cast<double>(x);
    const double number = ((static_cast<double>(left.elements[i]) - keep * wide) / gain + per_base * wide) / scale;
    const std::uint32_t middle = bits_of(static_cast<float>(number));
    const std::uint32_t wanted = bits_of(left.elements[i]);
    std::uint32_t best = left.numbers[i];
    std::uint32_t is_exact = 0;
    for (const std::uint32_t step : kSteps) {
      const std::uint32_t tried = middle + step;
      const bool is_number = (tried & kInfinityBits) != kInfinityBits;
      const std::uint32_t takes = mask_of(is_number && moved_bits<kForm>(x, float_of(tried), constants) == wanted);
      best = (best & ~takes) | (tried & takes);
      is_exact |= takes;
    }
    left.numbers[i] = best;
    exact += is_exact & 1;
  }
  return exact;
}

template <GradientForm kForm>
inline std::size_t find_shortest_as(const std::uint8_t* elements, const std::uint8_t* base, std::size_t count,
                                    const GradientConstants& constants, std::uint8_t* __restrict numbers) noexcept {
  const Inverse inverse = inverse_of<kForm>(constants);
  Unexplained left;
  std::uint8_t is_off[kShortestTogether];
  std::size_t exact = 0;
  for (std::size_t first = 0; first < count; first += kShortestTogether) {
    const std::size_t size = count - first < kShortestTogether ? count - first : kShortestTogether;
    const std::size_t at = first * sizeof(float);
    find_short_numbers<kForm>(elements + at, base + at, size, constants, inverse, numbers + at, is_off);
    left.count = 0;
    for (std::size_t i = 0; i < size; ++i) {
      left.places[left.count] = static_cast<std::uint32_t>(i);
      left.count += is_off[i];
    }
    for (std::size_t n = 0; n < left.count; ++n) {
      left.base[n] = load_at<float>(base + at, left.places[n]);
      left.elements[n] = load_at<float>(elements + at, left.places[n]);
      left.numbers[n] = load_at<std::uint32_t>(numbers + at, left.places[n]);
    }
    exact += size - left.count + find_long_numbers<kForm>(constants, left);
    for (std::size_t n = 0; n < left.count; ++n) store_at(numbers + at, left.places[n], left.numbers[n]);
  }
  return exact;
}

std::size_t find(GradientForm form, const std::uint8_t* elements, const std::uint8_t* base, std::size_t count,
                 const GradientConstants& constants, unsigned bits, std::uint8_t* numbers) noexcept {
  return by_form(form, [=, &constants]<GradientForm kForm>() {
    return find_as<kForm>(elements, base, count, constants, bits, numbers);
  });
}

std::size_t find_shortest(GradientForm form, const std::uint8_t* elements, const std::uint8_t* base, std::size_t count,
                          const GradientConstants& constants, std::uint8_t* numbers) noexcept {
  return by_form(form, [=, &constants]<GradientForm kForm>() {
    return find_shortest_as<kForm>(elements, base, count, constants, numbers);
  });
}

void upper_halves(const std::uint8_t* numbers, std::size_t count, std::uint8_t* __restrict halves) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    store_at(halves, i, static_cast<std::uint16_t>(load_at<std::uint32_t>(numbers, i) >> 16));
  }
}

std::uint8_t split_halves(const std::uint8_t* numbers, std::size_t count, std::uint8_t* __restrict upper,
                          std::uint16_t* __restrict lower) noexcept {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = load_at<std::uint32_t>(numbers, i);
    store_at(upper, i, static_cast<std::uint16_t>(bits >> 16));
    lower[i] = static_cast<std::uint16_t>(reversed_16(bits & 0xffff));
    const std::uint32_t magnitude = bits & kInfinityBits;
    most = magnitude > most ? magnitude : most;
  }
  return static_cast<std::uint8_t>(most >> 23);
}

// Whether the product is nearly a multiple.
inline bool is_near_multiple(float mantissa, float factor, float units, float tolerance) noexcept {
  constexpr float kOnlyIntegers = 12582912.0F;  // 1.5 * 2^23: from here on, floats are integers
  const float quotient = mantissa * factor;
  const float in_units = quotient * (quotient < 1 ? 2 * units : quotient < 2 ? units : units / 2);
  const float off = in_units - ((in_units + kOnlyIntegers) - kOnlyIntegers);
  return (off < 0 ? -off : off) <= tolerance;
}

MultiplesFound search_multiples(const float* mantissas, std::size_t count, const MultiplesSearch& search) noexcept {
  constexpr unsigned kTogether = 64;
  const float unit = 1 / (static_cast<float>(search.units) * search.reference);
  const auto units = static_cast<float>(search.units);
  const std::size_t glanced = count < kGlanced ? count : kGlanced;
  MultiplesFound found;
  for (unsigned first = search.units; first < 2 * search.units; first += kTogether) {
    float factors[kTogether];
    std::uint32_t counts[kTogether];
    for (unsigned k = 0; k < kTogether; ++k) {
      factors[k] = static_cast<float>(static_cast<std::int32_t>(first + k)) * unit;
      counts[k] = 0;
    }
    for (std::size_t i = 0; i < glanced; ++i) {
      for (unsigned k = 0; k < kTogether; ++k) {
        counts[k] += is_near_multiple(mantissas[i], factors[k], units, search.tolerance) ? 1U : 0U;
      }
    }
    for (unsigned k = 0; k < kTogether; ++k) {
      if (counts[k] * 3 < glanced * 2) continue;
      std::uint32_t multiples = 0;
      for (std::size_t i = 0; i < count; ++i) {
        multiples += is_near_multiple(mantissas[i], factors[k], units, search.tolerance) ? 1U : 0U;
      }
      if (multiples > found.multiples) found = {first + k, multiples};
    }
  }
  return found;
}

}  // namespace

constinit const GradientEncodeKernels GradientEncodeKernels::BITSNAP_KERNEL_LEVEL = {
    codec::find, codec::find_shortest, codec::upper_halves, codec::split_halves, codec::search_multiples};

}  // namespace bitsnap::codec
