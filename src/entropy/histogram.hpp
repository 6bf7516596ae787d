// Counts of the byte values in a block. Kernels: no allocation, no failure, any thread, the same counts on every CPU
// level.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace bitsnap::entropy {

using Histogram = std::array<std::uint32_t, 256>;

// Exact counts. Precondition: size < 2^32.
void count_bytes(const std::byte* bytes, std::size_t size, Histogram& counts) noexcept;

// Whether a sample shows that the order-0 entropy is so near 8 bits that coding cannot pay. Looks at 1 byte in 32, at
// places that depend on the size only.
[[nodiscard]] bool looks_incompressible(const std::byte* bytes, std::size_t size) noexcept;

// The same for counts of `sampled` bytes, at most 2^16. The smaller the sample, the more often a skewed block looks
// flat.
[[nodiscard]] bool looks_flat(const Histogram& counts, std::size_t sampled) noexcept;

}  // namespace bitsnap::entropy
