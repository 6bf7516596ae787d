// Runs the kernel on whole groups of 64 elements and handles the other elements one by one.
#include "entropy/change_mask.hpp"

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/bytes.hpp"
#include "base/cpu_dispatch.hpp"
#include "entropy/change_mask_kernel.hpp"

namespace bitsnap::entropy {
namespace {

constexpr std::size_t kGroup = 64;

bool is_set(const std::byte* mask, std::size_t i) noexcept {
  return (std::to_integer<unsigned>(mask[i / 8]) >> (i % 8) & 1U) != 0;
}

}  // namespace

std::size_t changed_mask(const std::byte* current, const std::byte* base, std::size_t elements,
                         std::size_t element_size, std::byte* mask) noexcept {
  const std::size_t groups = elements / kGroup;
  std::size_t count = kernels<ChangeMaskKernels>().changed[std::countr_zero(element_size)](as_u8(current), as_u8(base),
                                                                                           groups, as_u8(mask));
  for (std::size_t i = groups * kGroup; i < elements; ++i) {
    if (i % 8 == 0) mask[i / 8] = std::byte{0};
    if (std::memcmp(current + i * element_size, base + i * element_size, element_size) != 0) {
      mask[i / 8] |= std::byte{1} << (i % 8);
      ++count;
    }
  }
  return count;
}

std::size_t count_changed(const std::byte* mask, std::size_t elements) noexcept {
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + kGroup <= elements; i += kGroup) {
    count += static_cast<std::size_t>(std::popcount(load_le<std::uint64_t>(mask + i / 8)));
  }
  for (; i < elements; ++i) count += is_set(mask, i) ? std::size_t{1} : std::size_t{0};
  return count;
}

std::size_t gather_changed(const std::byte* current, const std::byte* mask, std::size_t elements,
                           std::size_t element_size, std::byte* values) noexcept {
  const std::size_t groups = elements / kGroup;
  std::size_t count = kernels<ChangeMoveKernels>().gather[std::countr_zero(element_size)](as_u8(current), as_u8(mask),
                                                                                          groups, as_u8(values));
  for (std::size_t i = groups * kGroup; i < elements; ++i) {
    if (!is_set(mask, i)) continue;
    std::memcpy(values + count * element_size, current + i * element_size, element_size);
    ++count;
  }
  return count;
}

std::size_t scatter_changed(const std::byte* base, const std::byte* mask, const std::byte* values, std::size_t elements,
                            std::size_t element_size, std::byte* out) noexcept {
  const std::size_t groups = elements / kGroup;
  std::size_t count = kernels<ChangeMoveKernels>().scatter[std::countr_zero(element_size)](
      as_u8(base), as_u8(mask), as_u8(values), groups, as_u8(out));
  for (std::size_t i = groups * kGroup; i < elements; ++i) {
    const std::byte* from = base + i * element_size;
    if (is_set(mask, i)) from = values + count++ * element_size;
    if (from != out + i * element_size) std::memcpy(out + i * element_size, from, element_size);
  }
  return count;
}

}  // namespace bitsnap::entropy
