// The Huffman decoding kernel for the baseline of every machine.
#include "entropy/huffman_decode_kernel.hpp"

#include "entropy/huffman_decode_loop.hpp"

namespace bitsnap::entropy {

std::size_t huffman_decode_scalar(const HuffmanCode& code, HuffmanStream* streams, std::size_t count,
                                  const std::uint8_t* readable_end, std::uint64_t* table) noexcept {
  return huffman_decode(code, streams, count, readable_end, table);
}

}  // namespace bitsnap::entropy
