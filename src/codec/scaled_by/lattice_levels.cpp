// Loops that compilers vectorize at each CPU level.
#include "codec/scaled_by/lattice_kernel.hpp"

#include "codec/scaled_by/lattice_arithmetic.hpp"

namespace bitsnap::codec {
namespace {

void nearest_multiples(const std::uint8_t* floats, const std::uint8_t* squares, std::size_t elements,
                       const LatticeScale& scale, float share, std::int16_t* __restrict multiples) noexcept {
  const auto [a, b] = scale;
  for (std::size_t i = 0; i < elements; ++i) {
    const float quotient = load_at<float>(floats, i) / scale_of(load_at<float>(squares, i), a, b);
    multiples[i] = static_cast<std::int16_t>(nearest_integer(quotient * share));
  }
}

bool measure_multiples(const std::uint8_t* floats, const std::uint8_t* squares, const std::int16_t* expected,
                       std::size_t elements, const LatticeScale& scale, std::uint16_t* __restrict values) noexcept {
  const auto [a, b] = scale;
  for (std::size_t i = 0; i < elements; ++i) {
    const float own = scale_of(load_at<float>(squares, i), a, b);
    const std::int32_t integer = nearest_integer(load_at<float>(floats, i) / own);
    const auto away = static_cast<std::int16_t>(integer - expected[i]);
    const auto zigzag = static_cast<std::uint16_t>((away << 1) ^ (away >> 15));
    values[i] = multiple_of(own, integer) == load_at<std::uint32_t>(floats, i) ? zigzag : kOffLattice;
  }
  // g++ does not vectorize this within the loop above.
  std::uint16_t most = 0;
  for (std::size_t i = 0; i < elements; ++i) most = values[i] > most ? values[i] : most;
  return most == kOffLattice;
}

bool put_multiples(const std::uint8_t* squares, const std::int16_t* expected, const std::uint16_t* values,
                   std::size_t elements, const LatticeScale& scale, std::uint8_t* __restrict out) noexcept {
  const auto [a, b] = scale;
  std::uint16_t most = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    const float own = scale_of(load_at<float>(squares, i), a, b);
    most = values[i] > most ? values[i] : most;
    const auto away = static_cast<std::int32_t>((values[i] >> 1) ^ -(values[i] & 1));
    const auto integer = static_cast<std::int16_t>(expected[i] + away);
    store_at(out, i, multiple_of(own, integer));
  }
  return most == kOffLattice;
}

}  // namespace

constinit const LatticeKernels LatticeKernels::BITSNAP_KERNEL_LEVEL = {codec::nearest_multiples,
                                                                       codec::measure_multiples, codec::put_multiples};

}  // namespace bitsnap::codec
