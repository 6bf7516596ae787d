// Byte planes for the general engines: all first bytes of the elements, then all second ones, and so on; of the bytes
// themselves or of their XOR with a base.
#pragma once

#include <cstddef>
#include <span>

namespace bitsnap::cli {

// `in`, `base` (empty or as long) and `out` have the same size and do not overlap; `element_bytes` is 1, 2, 4 or 8 and
// divides it.
void split_planes(std::span<const std::byte> in, std::span<const std::byte> base, std::size_t element_bytes,
                  std::span<std::byte> out) noexcept;
// The way back, with the same base.
void merge_planes(std::span<const std::byte> in, std::span<const std::byte> base, std::size_t element_bytes,
                  std::span<std::byte> out) noexcept;

}  // namespace bitsnap::cli
