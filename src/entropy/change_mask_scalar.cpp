// The scalar change-mask kernels.
#include "entropy/change_mask_kernel.hpp"

namespace bitsnap::entropy {
namespace {

constexpr std::size_t kGroup = 64;

template <typename Element>
Element load(const std::uint8_t* from) noexcept {
  Element element;
  __builtin_memcpy(&element, from, sizeof(Element));
  return element;
}

template <typename Element>
std::size_t changed(const std::uint8_t* current, const std::uint8_t* base, std::size_t groups,
                    std::uint8_t* mask) noexcept {
  std::size_t count = 0;
  for (std::size_t group = 0; group < groups; ++group) {
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < kGroup; ++i) {
      const std::size_t at = (group * kGroup + i) * sizeof(Element);
      bits |= static_cast<std::uint64_t>(load<Element>(current + at) != load<Element>(base + at)) << i;
    }
    __builtin_memcpy(mask + group * 8, &bits, 8);
    count += static_cast<std::size_t>(__builtin_popcountll(bits));
  }
  return count;
}

template <typename Element>
std::size_t gather(const std::uint8_t* current, const std::uint8_t* mask, std::size_t groups,
                   std::uint8_t* values) noexcept {
  std::uint8_t* to = values;
  for (std::size_t group = 0; group < groups; ++group) {
    const std::uint8_t* const from = current + group * kGroup * sizeof(Element);
    for (std::uint64_t bits = load<std::uint64_t>(mask + group * 8); bits != 0; bits &= bits - 1) {
      __builtin_memcpy(to, from + static_cast<std::size_t>(__builtin_ctzll(bits)) * sizeof(Element), sizeof(Element));
      to += sizeof(Element);
    }
  }
  return static_cast<std::size_t>(to - values) / sizeof(Element);
}

template <typename Element>
std::size_t scatter(const std::uint8_t* base, const std::uint8_t* mask, const std::uint8_t* values, std::size_t groups,
                    std::uint8_t* out) noexcept {
  const std::uint8_t* from = values;
  for (std::size_t group = 0; group < groups; ++group) {
    const std::size_t at = group * kGroup * sizeof(Element);
    if (out != base) __builtin_memcpy(out + at, base + at, kGroup * sizeof(Element));
    for (std::uint64_t bits = load<std::uint64_t>(mask + group * 8); bits != 0; bits &= bits - 1) {
      __builtin_memcpy(out + at + static_cast<std::size_t>(__builtin_ctzll(bits)) * sizeof(Element), from,
                       sizeof(Element));
      from += sizeof(Element);
    }
  }
  return static_cast<std::size_t>(from - values) / sizeof(Element);
}

}  // namespace

constinit const ChangeMaskKernels ChangeMaskKernels::kScalar = {
    {entropy::changed<std::uint8_t>, entropy::changed<std::uint16_t>, entropy::changed<std::uint32_t>,
     entropy::changed<std::uint64_t>}};
constinit const ChangeMoveKernels ChangeMoveKernels::kScalar = {
    {entropy::gather<std::uint8_t>, entropy::gather<std::uint16_t>, entropy::gather<std::uint32_t>,
     entropy::gather<std::uint64_t>},
    {entropy::scatter<std::uint8_t>, entropy::scatter<std::uint16_t>, entropy::scatter<std::uint32_t>,
     entropy::scatter<std::uint64_t>}};

}  // namespace bitsnap::entropy
