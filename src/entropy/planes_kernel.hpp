// The kernels behind planes.hpp, one pair per CPU level; preconditions and aliasing are stated there.
//
// `base` is null where nothing is XORed; `rotated` is never set together with a base. Element sizes are 2, 4 and 8.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::entropy {

void split_planes_scalar(const std::uint8_t* in, const std::uint8_t* base, std::size_t elements,
                         std::size_t element_size, bool rotated, std::uint8_t* const* planes) noexcept;
void split_planes_avx2(const std::uint8_t* in, const std::uint8_t* base, std::size_t elements, std::size_t element_size,
                       bool rotated, std::uint8_t* const* planes) noexcept;
void split_planes_avx512(const std::uint8_t* in, const std::uint8_t* base, std::size_t elements,
                         std::size_t element_size, bool rotated, std::uint8_t* const* planes) noexcept;

void merge_planes_scalar(const std::uint8_t* const* planes, const std::uint8_t* base, std::size_t elements,
                         std::size_t element_size, bool rotated, std::uint8_t* out) noexcept;
void merge_planes_avx2(const std::uint8_t* const* planes, const std::uint8_t* base, std::size_t elements,
                       std::size_t element_size, bool rotated, std::uint8_t* out) noexcept;
void merge_planes_avx512(const std::uint8_t* const* planes, const std::uint8_t* base, std::size_t elements,
                         std::size_t element_size, bool rotated, std::uint8_t* out) noexcept;

}  // namespace bitsnap::entropy
