// Finds the factor of the floors from the smallest ratios ("shares") of elements to their bases in a sample.
//
// The factor that keeps every element at or above its floor is the largest one below all shares, taken of elements
// that are half a unit larger. If some elements only decayed, for example a second moment whose gradient was 0, this is
// exactly the factor of the decay, and their measures are 0. If none did, the smallest shares may be a thin tail, and
// leaving that below the floor is cheaper than measuring all other elements from there. The leading bits of the
// measures above either floor decide. Shares are quotients of doubles, which IEEE 754 defines to the last bit. None are
// subnormal.
#include "codec/ordinal_delta/floor_factor_encode.hpp"

#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "codec/ordinal_delta/element_floors.hpp"
#include "codec/ordinal_delta/ordinal_delta.hpp"

namespace bitsnap::codec {
namespace {

// At most kBelow elements of a full sample may lie below their floors; each costs kBelowBits, because it is escaped and
// far.
constexpr std::size_t kBelow = 8;
constexpr std::size_t kPerBelow = 1024;
constexpr std::size_t kBelowBits = 48;
static_assert(kBelow * kPerBelow >= kDeltaRuns.total());

// The choice between factors looks at one element in this many.
constexpr std::size_t kPerCounted = 8;

// Factors within this ULP distance differ by rounding only.
constexpr std::uint32_t kOfOnePile = 16;

constexpr std::uint64_t kNoShare = std::numeric_limits<std::uint64_t>::max();

// The bits of an F32 followed by 29 more have this much less exponent bias than a double.
constexpr std::uint64_t kBias = std::uint64_t{1023 - 127} << 52;
constexpr unsigned kMoreBits = 29;

double widened(std::uint64_t bits) noexcept { return std::bit_cast<double>(bits + kBias); }

// The smallest shares in ascending order, as the bits of doubles; kNoShare after the last.
class LeastShares {
 public:
  LeastShares() noexcept { least_.fill(kNoShare); }

  void add(std::uint32_t element, std::uint32_t base) noexcept {
    const double half_above = widened((std::uint64_t{element} << 1 | 1) << (kMoreBits - 1));
    const double whole = widened(std::uint64_t{base} << kMoreBits);
    // True for nearly all elements; a product is faster than a quotient.
    if (half_above >= limit_ * whole || !is_floor_factor(element) || !is_floor_factor(base)) return;
    const auto share = std::bit_cast<std::uint64_t>(half_above / whole);
    if (share >= least_.back()) return;
    least_.back() = share;
    for (std::size_t k = kBelow; k > 0 && least_[k] < least_[k - 1]; --k) std::swap(least_[k], least_[k - 1]);
    if (least_.back() != kNoShare) limit_ = std::bit_cast<double>(least_.back()) * kRoundingLimit;
  }

  [[nodiscard]] std::uint64_t operator[](std::size_t k) const noexcept { return least_[k]; }

 private:
  static constexpr double kRoundingLimit = 1.0 + 0x1p-50;

  std::array<std::uint64_t, kBelow + 1> least_;
  double limit_ = std::numeric_limits<double>::max();  // larger shares are not among the smallest
};

// The largest factor below the share.
std::uint32_t factor_below(std::uint64_t share) noexcept {
  if (share == kNoShare || share <= kBias) return 0;
  const std::uint64_t bits = (share - 1 - kBias) >> kMoreBits;
  return bits <= std::numeric_limits<std::uint32_t>::max() && is_floor_factor(static_cast<std::uint32_t>(bits))
             ? static_cast<std::uint32_t>(bits)
             : 0;
}

std::uint32_t element_at(ConstByteSpan bytes, std::size_t i) noexcept {
  return load_le<std::uint32_t>(bytes.data() + i * sizeof(std::uint32_t));
}

// The bits of the measures above these floors, for one element in kPerCounted.
std::uint64_t count_bits(const DeltaSample& sample, std::uint32_t factor) noexcept {
  const Floors floors(factor);
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < sample.values.size(); i += kPerCounted) {
    bits += static_cast<unsigned>(std::bit_width(element_at(sample.data, i) - floors.of(element_at(sample.base, i))));
  }
  return bits;
}

}  // namespace

std::uint32_t find_floor_factor(const DeltaSample& sample) noexcept {
  const std::size_t elements = sample.values.size();
  std::uint32_t any = 0;
  for (std::size_t i = 0; i < elements; ++i) any |= element_at(sample.data, i) | element_at(sample.base, i);
  if (any >> 31 != 0) return 0;

  LeastShares least;
  for (std::size_t i = 0; i < elements; ++i) least.add(element_at(sample.data, i), element_at(sample.base, i));
  const std::uint32_t lower = factor_below(least[0]);
  const std::size_t below = elements / kPerBelow;
  const std::uint32_t upper = factor_below(least[below]);
  if (lower == 0 || upper <= lower + kOfOnePile) return lower;
  const std::uint64_t cost = below * kBelowBits / kPerCounted;
  return count_bits(sample, upper) + cost < count_bits(sample, lower) ? upper : lower;
}

}  // namespace bitsnap::codec
