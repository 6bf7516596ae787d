// The packed mask of changed elements, and moving the changed elements out of a chunk and into one.
//
// Mask: bit i % 8 (least significant first) of byte i / 8 stands for element i; mask_bytes(elements) bytes. The writer
// leaves the unused bits of the last byte zero; the readers here ignore them.
// Kernels: they allocate nothing, cannot fail, may be called from any thread, and give the same bytes on every CPU
// level. Preconditions: element_size is 1, 2, 4 or 8; buffers hold what the arguments say; no alignment is needed; what
// is written must not overlap what is read, except that `out` may be `base` itself in scatter_changed.
#pragma once

#include <cstddef>

namespace bitsnap::entropy {

[[nodiscard]] constexpr std::size_t mask_bytes(std::size_t elements) noexcept {
  return elements / 8 + (elements % 8 != 0 ? 1 : 0);
}

// Sets the bits of elements whose bytes differ between `current` and `base`; returns how many there are.
std::size_t changed_mask(const std::byte* current, const std::byte* base, std::size_t elements,
                         std::size_t element_size, std::byte* mask) noexcept;

// How many of the first `elements` bits of the mask are set.
[[nodiscard]] std::size_t count_changed(const std::byte* mask, std::size_t elements) noexcept;

// Copies the elements whose bit is set to `values`, in order, without gaps; returns how many. `values` has room for
// exactly count_changed(mask, elements) elements.
std::size_t gather_changed(const std::byte* current, const std::byte* mask, std::size_t elements,
                           std::size_t element_size, std::byte* values) noexcept;

// out[i] = the next of `values` where the bit is set, base[i] elsewhere; returns how many values it took. Precondition,
// to be proved by the caller of an untrusted mask: `values` holds count_changed(mask, elements) elements.
std::size_t scatter_changed(const std::byte* base, const std::byte* mask, const std::byte* values, std::size_t elements,
                            std::size_t element_size, std::byte* out) noexcept;

}  // namespace bitsnap::entropy
