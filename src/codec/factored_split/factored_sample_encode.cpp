// Finds the middle of a chunk from a thousand elements, and the row length by autocorrelation.
#include "codec/factored_split/factored_sample_encode.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/cpu_dispatch.hpp"
#include "entropy/planes.hpp"

namespace bitsnap::codec {
namespace {

constexpr std::size_t kMiddleElements = 1024;
// the signs are moved to the lowest bit if one sampled element in this many is negative
constexpr std::size_t kPerSign = 64;

// Model widths are multiples of 64.
constexpr std::size_t kPeriodUnit = 64;
constexpr std::size_t kMostPeriod = 16384;
constexpr std::size_t kFewestPeriods = 8;

// The period is searched in blocks of 64 elements from several places, each minus its own mean, which removes the scale
// of the row.
constexpr std::size_t kPlaces = 4;
constexpr std::size_t kPlaceBlocks = 8;
constexpr std::size_t kPlaceElements = kPlaceBlocks * kPeriodUnit;
constexpr std::size_t kFewestElements = 65536;

// A correlation of this many hundredths is more than chance.
constexpr std::int64_t kLeastAlike = 8;

constexpr unsigned kRoughSum = 6;   // makes the squares of sums fit 64 bits
constexpr unsigned kRoughBits = 3;  // 16ths of an octave, which makes sums of products fit 32 bits

std::uint32_t sampled_element(ConstByteSpan data, std::size_t i, std::size_t element_bytes) noexcept {
  std::uint32_t element = 0;
  std::memcpy(&element, data.data() + i * element_bytes, element_bytes);
  return element;
}

// Subtracts its mean from each block.
void center_blocks(std::int16_t* elements) noexcept {
  for (std::size_t block = 0; block < kPlaceBlocks; ++block) {
    std::int16_t* const own = elements + block * kPeriodUnit;
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < kPeriodUnit; ++i) sum += own[i];
    const std::int32_t mean = sum >> 6;
    const auto left = static_cast<std::size_t>(sum & 63);
    static_assert(kPeriodUnit == 64);
    for (std::size_t i = 0; i < kPeriodUnit; ++i)
      own[i] = static_cast<std::int16_t>(own[i] - mean - (i < left ? 1 : 0));
  }
}

}  // namespace

FactoredNature find_nature(ConstByteSpan data, const FactoredFloats& floats) noexcept {
  const std::size_t element_bytes = floats.element_bytes();
  const std::size_t elements = data.size() / element_bytes;
  const std::size_t looked_at = std::min(elements, kMiddleElements);
  const unsigned sign_bit = static_cast<unsigned>(8 * element_bytes) - 1;
  const unsigned mantissa = floats.floats.mantissa_bits();
  std::array<std::uint16_t, 256> counts{};
  std::size_t total = 0;
  std::size_t signs = 0;
  for (std::size_t i = 0; i < looked_at; ++i) {
    const std::uint32_t element = sampled_element(data, i * elements / looked_at, element_bytes);
    const std::uint32_t magnitude = element & ((std::uint32_t{1} << sign_bit) - 1);
    if (magnitude == 0) continue;
    ++counts[magnitude >> mantissa];
    ++total;
    signs += element >> sign_bit;
  }
  std::int32_t exponent = 0;
  for (std::size_t below = 0; exponent < 255; ++exponent) {
    below += counts[static_cast<std::size_t>(exponent)];
    if (2 * below >= total) break;
  }
  FactoredNature nature;
  // With one low byte, a value has no room for a sign above the exponent.
  const bool has_to_rotate = floats.low_bytes() == 1 && entropy::any_sign_bit_set(data.data(), elements, element_bytes);
  nature.geometry = {.element_bytes = element_bytes,
                     .low_bytes = floats.low_bytes(),
                     .rotated = has_to_rotate || signs * kPerSign > total};
  nature.octave_bits = floats.value_mantissa_bits() + (nature.geometry.rotated ? 1 : 0);
  const unsigned unit = nature.octave_bits - std::min(nature.octave_bits, kUnitsOfOctave);
  const unsigned finer = kUnitsOfOctave - std::min(nature.octave_bits, kUnitsOfOctave);
  nature.range = {.middle = (2 * exponent + 1) << nature.octave_bits >> 1,
                  .most = kMostDistance << unit >> finer,
                  .unit = unit,
                  .finer = finer};
  return nature;
}

Result<std::size_t> find_row_elements(ConstByteSpan data, const FactoredNature& nature, Scratch& scratch) {
  const std::size_t elements = data.size() / nature.geometry.element_bytes;
  if (elements < kFewestElements) return std::size_t{0};
  const Scratch::Frame frame(scratch);
  const std::size_t most = std::min(kMostPeriod, elements / kFewestPeriods);
  const std::size_t reach = kPlaceElements + most;
  BITSNAP_ASSIGN(const std::span<std::int16_t> near, scratch.take_array<std::int16_t>(reach));
  std::array<std::int16_t, kPlaceElements> own;
  std::array<std::int64_t, kMostPeriod / kPeriodUnit + 1> alike{};
  std::int64_t same = 0;
  const FactoredRowKernels& rows = kernels<FactoredRowKernels>();
  for (std::size_t place = 0; place < kPlaces; ++place) {
    const std::size_t first = (elements - reach) * place / (kPlaces - 1);
    rows.measure(reinterpret_cast<const std::uint8_t*>(data.data()) + first * nature.geometry.element_bytes, reach,
                 nature.geometry, nature.range, kRoughBits, near.data());
    std::copy_n(near.begin(), kPlaceElements, own.begin());
    center_blocks(own.data());
    same += rows.correlate(own.data(), own.data(), kPlaceElements);
    for (std::size_t period = kPeriodUnit; period <= most; period += kPeriodUnit) {
      alike[period / kPeriodUnit] += rows.correlate(own.data(), near.data() + period, kPlaceElements);
    }
  }
  // All multiples of the row length correlate equally well. The period whose multiples correlate most, relative to
  // chance for that number of multiples, is the row length itself, neither a divisor nor a multiple of it.
  std::size_t best = 0;
  std::int64_t best_square = 0;
  std::int64_t best_sum = 0;
  for (std::size_t unit = 1; unit * kPeriodUnit <= most; ++unit) {
    std::int64_t sum = 0;
    std::int64_t multiples = 0;
    for (std::size_t i = unit; i * kPeriodUnit <= most; i += unit, ++multiples) sum += alike[i];
    if (sum <= 0) continue;
    const std::int64_t rough = sum >> kRoughSum;
    if (rough * rough / multiples <= best_square) continue;
    best = unit;
    best_square = rough * rough / multiples;
    best_sum = sum / multiples;
  }
  return best_sum * 100 >= same * kLeastAlike ? best * kPeriodUnit : std::size_t{0};
}

}  // namespace bitsnap::codec
