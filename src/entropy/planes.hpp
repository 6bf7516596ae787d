// Splits elements into byte planes and merges them: plane k holds byte k (little-endian) of each element.
//
// Kernels (base/cpu_dispatch.hpp). Preconditions: element_size is 1, 2, 4 or 8 (rotated forms: 2, 4 or 8); `planes` has
// element_size entries, each with room for `elements` bytes. `out` may be `base` in xor_merge_planes.
#pragma once

#include <cstddef>

namespace bitsnap::entropy {

inline constexpr std::size_t kMaxElementSize = 8;

void split_planes(const std::byte* in, std::size_t elements, std::size_t element_size,
                  std::byte* const planes[]) noexcept;
void merge_planes(const std::byte* const planes[], std::size_t elements, std::size_t element_size,
                  std::byte* out) noexcept;

// Planes of in XOR base; and out = merged planes XOR base.
void xor_split_planes(const std::byte* in, const std::byte* base, std::size_t elements, std::size_t element_size,
                      std::byte* const planes[]) noexcept;
void xor_merge_planes(const std::byte* const planes[], const std::byte* base, std::size_t elements,
                      std::size_t element_size, std::byte* out) noexcept;

// Splits elements rotated left by one bit: the sign becomes the lowest bit of plane 0, and the exponent of a bf16 or
// f32 fills the top plane exactly.
void rotated_split_planes(const std::byte* in, std::size_t elements, std::size_t element_size,
                          std::byte* const planes[]) noexcept;
void rotated_merge_planes(const std::byte* const planes[], std::size_t elements, std::size_t element_size,
                          std::byte* out) noexcept;

// Whether the top bit of any element is set. Elements of 1, 2, 4 or 8 bytes.
[[nodiscard]] bool any_sign_bit_set(const std::byte* in, std::size_t elements, std::size_t element_size) noexcept;

// Whether all elements have the same bytes (true for zero or one element). Any element size above zero.
[[nodiscard]] bool all_equal_element(const std::byte* in, std::size_t elements, std::size_t element_size) noexcept;

}  // namespace bitsnap::entropy
