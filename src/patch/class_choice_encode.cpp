// Exponents whose elements change often are dense. The others become classes: one for each exponent at first, of which
// neighbours are joined while that costs least.
#include "patch/class_choice_encode.hpp"

#include <algorithm>
#include <bit>

#include "patch/slab_kernel.hpp"

namespace bitsnap::patch {
namespace {

// Elements of an exponent are dense if at least one in three changes, where lists cost more than their entropy, or if
// one in eight of the changes is farther than one ULP. A class costs its header.
constexpr std::uint64_t kListedOneIn = 3;
constexpr std::uint64_t kFartherOneIn = 8;
constexpr std::uint64_t kHeaderBits = 32;
constexpr unsigned kCostBits = 16;
// Eight would save 1 % more, but the time of both sides grows with each.
constexpr std::size_t kUsedClasses = 4;

struct Class {
  std::uint32_t first = 0;
  std::uint64_t elements = 0;
  std::uint64_t changed = 0;
};

// n log2(n) in units of 2^-kCostBits, with the bits of the fraction by repeated squaring: the same on every CPU.
std::uint64_t times_logarithm(std::uint64_t n) noexcept {
  if (n == 0) return 0;
  const auto whole = static_cast<unsigned>(std::bit_width(n)) - 1;
  std::uint64_t power = n << (31 - whole);  // in [1, 2), with 31 bits after the point
  std::uint64_t logarithm = whole;
  for (unsigned bit = 0; bit < kCostBits; ++bit) {
    power = power * power >> 31;
    const std::uint64_t carry = power >> 32;
    power >>= carry;
    logarithm = logarithm << 1 | carry;
  }
  return n * logarithm;
}

// The bits that tell which elements changed, in units of 2^-kCostBits.
std::uint64_t cost_of(const Class& own) noexcept {
  const std::uint64_t all = times_logarithm(own.elements);
  const std::uint64_t parts = times_logarithm(own.changed) + times_logarithm(own.elements - own.changed);
  return (all > parts ? all - parts : 0) + (kHeaderBits << kCostBits);
}

Class joined(const Class& a, const Class& b) noexcept {
  return {.first = a.first, .elements = a.elements + b.elements, .changed = a.changed + b.changed};
}

std::uint32_t choose_dense(const ExponentCounts& counts, std::uint32_t exponents, std::uint64_t most_dense) noexcept {
  std::uint32_t dense = 0;
  std::uint64_t elements = 0;
  for (std::uint32_t e = 0; e < exponents; ++e) {
    elements += counts.elements[e];
    if (elements > most_dense) break;
    const std::uint64_t changed = counts.changed[e];
    if (changed == 0) continue;
    const bool often = changed * kListedOneIn >= counts.elements[e];
    const bool far = std::uint64_t{counts.farther[e]} * kFartherOneIn >= changed;
    if (often || far) dense = e + 1;
  }
  return dense;
}

}  // namespace

ClassChoice choose_classes(const ExponentCounts& counts, std::uint32_t exponents, std::uint64_t most_dense) noexcept {
  ClassChoice choice;
  // More than 255 dense exponents have no place in the header.
  const std::uint32_t dense = std::min(choose_dense(counts, exponents, most_dense), exponents - 1);
  std::array<Class, kMostExponents> classes;
  std::size_t size = 0;
  std::uint32_t end = dense;
  for (std::uint32_t e = dense; e < exponents; ++e) {
    if (counts.changed[e] > 0) end = e + 1;
  }
  for (std::uint32_t e = dense; e < end; ++e) {
    const Class own{.first = e, .elements = counts.elements[e], .changed = counts.changed[e]};
    if (size > 0 && (own.elements == 0 || classes[size - 1].elements == 0)) {
      classes[size - 1] = joined(classes[size - 1], own);
    } else {
      classes[size++] = own;
    }
  }
  while (size > 1) {
    std::size_t best = 0;
    std::int64_t least = 0;
    for (std::size_t i = 0; i + 1 < size; ++i) {
      const auto more = static_cast<std::int64_t>(cost_of(joined(classes[i], classes[i + 1]))) -
                        static_cast<std::int64_t>(cost_of(classes[i]) + cost_of(classes[i + 1]));
      if (i == 0 || more < least) {
        best = i;
        least = more;
      }
    }
    if (size <= kUsedClasses && least > 0) break;
    classes[best] = joined(classes[best], classes[best + 1]);
    std::move(classes.begin() + static_cast<std::ptrdiff_t>(best) + 2,
              classes.begin() + static_cast<std::ptrdiff_t>(size),
              classes.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    --size;
  }
  choice.classes = size;
  choice.first[0] = dense;
  for (std::size_t i = 0; i < size; ++i) choice.first[i] = classes[i].first;
  choice.first[size] = std::max(end, dense);
  return choice;
}

}  // namespace bitsnap::patch
