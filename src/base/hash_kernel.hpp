// XXH3-64 compiled once for each instruction set; all give the same hash.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap {

std::uint64_t hash64_scalar(const void* bytes, std::size_t size) noexcept;
std::uint64_t hash64_avx2(const void* bytes, std::size_t size) noexcept;
std::uint64_t hash64_avx512(const void* bytes, std::size_t size) noexcept;

}  // namespace bitsnap
