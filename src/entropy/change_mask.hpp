// The packed mask of changed elements; gathering the changed elements of a chunk, and scattering them into one.
//
// Bit i % 8 (least significant first) of byte i / 8 stands for element i; mask_bytes(elements) bytes. The writer
// leaves the unused bits of the last byte zero; the readers here ignore them.
// Kernels (base/cpu_dispatch.hpp). Precondition: element_size is 1, 2, 4 or 8. `out` may be `base` in scatter_changed.
#pragma once

#include <cstddef>

namespace bitsnap::entropy {

[[nodiscard]] constexpr std::size_t mask_bytes(std::size_t elements) noexcept {
  return elements / 8 + (elements % 8 != 0 ? 1 : 0);
}

// Sets the bits of elements whose bytes differ between `current` and `base`; returns their number.
std::size_t changed_mask(const std::byte* current, const std::byte* base, std::size_t elements,
                         std::size_t element_size, std::byte* mask) noexcept;

// The number of set bits among the first `elements` bits of the mask.
[[nodiscard]] std::size_t count_changed(const std::byte* mask, std::size_t elements) noexcept;

// Copies the elements whose bit is set to `values`, in order; returns their number. `values` has room for exactly
// count_changed(mask, elements) elements.
std::size_t gather_changed(const std::byte* current, const std::byte* mask, std::size_t elements,
                           std::size_t element_size, std::byte* values) noexcept;

// out[i] = the next of `values` if the bit is set, else base[i]; returns the number of values used. Precondition, which
// the caller must check for an untrusted mask: `values` holds count_changed(mask, elements) elements.
std::size_t scatter_changed(const std::byte* base, const std::byte* mask, const std::byte* values, std::size_t elements,
                            std::size_t element_size, std::byte* out) noexcept;

}  // namespace bitsnap::entropy
