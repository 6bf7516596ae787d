// Chunks that reach every part of the kernels for GPUs, the same on every machine: for the tests without a GPU and for
// gpu_check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <bitsnap/dtype.hpp>

#include "base/bytes.hpp"
#include "codec/trained_like_testing.hpp"
#include "gpu/lane_jobs.hpp"

namespace bitsnap::gpu {

// Numbers without signs. Lanes suit them only because the lowest bit of the exponent is as random as the mantissa.
inline void fill_without_signs(DType dtype, ByteSpan elements, std::uint64_t seed) {
  const unsigned mantissa_bits = dtype == DType::bf16 ? 7 : 23;
  codec::TestRandom random(seed);
  for (std::size_t at = 0; at < elements.size(); at += element_size(dtype)) {
    const std::uint64_t exponent = 112 + random.below(4) + random.below(4) * 2;
    const std::uint64_t bits = exponent << mantissa_bits | random.below(std::uint64_t{1} << mantissa_bits);
    std::memcpy(&elements[at], &bits, element_size(dtype));
  }
}

// Puts elements with any bits in between, so that some symbols are escaped: about one in `every`.
inline void scatter_outliers(DType dtype, ByteSpan elements, std::size_t every, bool has_signs, std::uint64_t seed) {
  codec::TestRandom random(seed);
  const std::size_t width = element_size(dtype);
  for (std::size_t i = random.below(every); i < elements.size() / width; i += 1 + random.below(2 * every)) {
    const std::uint64_t bits = random.next();
    std::memcpy(&elements[i * width], &bits, width);
    if (!has_signs) elements[(i + 1) * width - 1] &= std::byte{0x7f};
  }
}

// Gives all elements one symbol, and leaves their lower bytes and signs as they are.
inline void give_one_symbol(DType dtype, ByteSpan elements) {
  const std::size_t width = element_size(dtype);
  for (std::size_t end = width; end <= elements.size(); end += width) {
    elements[end - 1] = (elements[end - 1] & std::byte{0x80}) | std::byte{0x3a};
    elements[end - 2] &= std::byte{0x7f};  // the lowest bit of the exponent
  }
}

// Chunk `number` of a mixture: with and without signs, escapes, blocks of one symbol, an end within a round, and some
// that the CPU has to code.
[[nodiscard]] constexpr std::size_t mixed_chunk_elements(std::size_t number) noexcept {
  return number % 5 == 4 ? 2 * kBlockElements + 3001 : 4 * kBlockElements;
}
// Whether the chunk's elements have zeros at their ends, which the codec leaves out, and the kernels do not.
[[nodiscard]] constexpr bool is_left_to_cpu(std::size_t number) noexcept { return number % 13 == 12; }
inline void fill_mixed_chunk(DType dtype, std::size_t number, ByteSpan elements) {
  const bool has_signs = number % 3 != 2;
  if (has_signs) {
    codec::fill_trained_like(dtype, elements, number);
  } else {
    fill_without_signs(dtype, elements, number);
  }
  if (number % 7 > 0) scatter_outliers(dtype, elements, 12000 / (number % 7), has_signs, number);
  const std::size_t block_bytes = kBlockElements * element_size(dtype);
  if (number % 4 == 1) give_one_symbol(dtype, elements.subspan(block_bytes, block_bytes));
  if (is_left_to_cpu(number)) {
    for (std::size_t at = 0; at < elements.size(); at += element_size(dtype)) elements[at] &= std::byte{0xf0};
  }
}

}  // namespace bitsnap::gpu
