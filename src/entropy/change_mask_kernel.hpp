// The kernels behind change_mask.hpp; preconditions and aliasing are stated there. Each does whole groups of 64
// elements from the front and leaves the rest to the caller.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::entropy {

// Each returns how many elements were found changed, gathered or scattered in `groups` groups.
std::size_t changed_mask_scalar(const std::uint8_t* current, const std::uint8_t* base, std::size_t groups,
                                std::size_t element_size, std::uint8_t* mask) noexcept;
std::size_t changed_mask_avx2(const std::uint8_t* current, const std::uint8_t* base, std::size_t groups,
                              std::size_t element_size, std::uint8_t* mask) noexcept;
std::size_t changed_mask_avx512(const std::uint8_t* current, const std::uint8_t* base, std::size_t groups,
                                std::size_t element_size, std::uint8_t* mask) noexcept;

std::size_t gather_changed_scalar(const std::uint8_t* current, const std::uint8_t* mask, std::size_t groups,
                                  std::size_t element_size, std::uint8_t* values) noexcept;
std::size_t gather_changed_avx512(const std::uint8_t* current, const std::uint8_t* mask, std::size_t groups,
                                  std::size_t element_size, std::uint8_t* values) noexcept;

std::size_t scatter_changed_scalar(const std::uint8_t* base, const std::uint8_t* mask, const std::uint8_t* values,
                                   std::size_t groups, std::size_t element_size, std::uint8_t* out) noexcept;
std::size_t scatter_changed_avx512(const std::uint8_t* base, const std::uint8_t* mask, const std::uint8_t* values,
                                   std::size_t groups, std::size_t element_size, std::uint8_t* out) noexcept;

}  // namespace bitsnap::entropy
