// How often each byte value occurs in a block. A kernel: no allocation, no failure, any thread; the same counts on
// every CPU level.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace bitsnap::entropy {

using Histogram = std::array<std::uint32_t, 256>;

// Exact counts. Precondition: size < 2^32.
void count_bytes(const std::byte* bytes, std::size_t size, Histogram& counts) noexcept;

// Whether a sample of the block says that its order-0 entropy is so near 8 bits that coding cannot pay. Looks at 1 byte
// in 32, at places that depend on the size only. Errs towards false: a skewed block is never taken for a flat one as
// long as the sampled places show it.
[[nodiscard]] bool looks_incompressible(const std::byte* bytes, std::size_t size) noexcept;

// The same of counts of `sampled` bytes, 2^16 at most. The fewer there are, the oftener a skewed block is taken for a
// flat one.
[[nodiscard]] bool looks_flat(const Histogram& counts, std::size_t sampled) noexcept;

}  // namespace bitsnap::entropy
