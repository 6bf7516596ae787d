// The change-mask kernels for the baseline of every machine.
#include "entropy/change_mask_kernel.hpp"

#include <bit>
#include <cstring>

namespace bitsnap::entropy {
namespace {

constexpr std::size_t kGroup = 64;

template <typename Element>
Element load(const std::uint8_t* from) noexcept {
  Element element;
  std::memcpy(&element, from, sizeof(Element));
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
    std::memcpy(mask + group * 8, &bits, 8);
    count += static_cast<std::size_t>(std::popcount(bits));
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
      std::memcpy(to, from + static_cast<std::size_t>(std::countr_zero(bits)) * sizeof(Element), sizeof(Element));
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
    if (out != base) std::memcpy(out + at, base + at, kGroup * sizeof(Element));
    for (std::uint64_t bits = load<std::uint64_t>(mask + group * 8); bits != 0; bits &= bits - 1) {
      std::memcpy(out + at + static_cast<std::size_t>(std::countr_zero(bits)) * sizeof(Element), from, sizeof(Element));
      from += sizeof(Element);
    }
  }
  return static_cast<std::size_t>(from - values) / sizeof(Element);
}

}  // namespace

std::size_t changed_mask_scalar(const std::uint8_t* current, const std::uint8_t* base, std::size_t groups,
                                std::size_t element_size, std::uint8_t* mask) noexcept {
  switch (element_size) {
    case 1: return changed<std::uint8_t>(current, base, groups, mask);
    case 2: return changed<std::uint16_t>(current, base, groups, mask);
    case 4: return changed<std::uint32_t>(current, base, groups, mask);
    default: return changed<std::uint64_t>(current, base, groups, mask);
  }
}

std::size_t gather_changed_scalar(const std::uint8_t* current, const std::uint8_t* mask, std::size_t groups,
                                  std::size_t element_size, std::uint8_t* values) noexcept {
  switch (element_size) {
    case 1: return gather<std::uint8_t>(current, mask, groups, values);
    case 2: return gather<std::uint16_t>(current, mask, groups, values);
    case 4: return gather<std::uint32_t>(current, mask, groups, values);
    default: return gather<std::uint64_t>(current, mask, groups, values);
  }
}

std::size_t scatter_changed_scalar(const std::uint8_t* base, const std::uint8_t* mask, const std::uint8_t* values,
                                   std::size_t groups, std::size_t element_size, std::uint8_t* out) noexcept {
  switch (element_size) {
    case 1: return scatter<std::uint8_t>(base, mask, values, groups, out);
    case 2: return scatter<std::uint16_t>(base, mask, values, groups, out);
    case 4: return scatter<std::uint32_t>(base, mask, values, groups, out);
    default: return scatter<std::uint64_t>(base, mask, values, groups, out);
  }
}

}  // namespace bitsnap::entropy
