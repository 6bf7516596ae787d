// The Huffman decoding kernel with BMI2 shifts and AVX2 table building; called only where the machine has both.
#include "entropy/huffman_decode_kernel.hpp"

#if defined(__x86_64__)
#include "entropy/huffman_decode_loop.hpp"

namespace bitsnap::entropy {

std::size_t huffman_decode_avx2(const HuffmanCode& code, HuffmanStream* streams, std::size_t count,
                                const std::uint8_t* readable_end, std::uint64_t* table) noexcept {
  return huffman_decode(code, streams, count, readable_end, table);
}

}  // namespace bitsnap::entropy
#endif
