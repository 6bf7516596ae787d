// The Huffman encoding kernel with BMI2 shifts; called only where the machine has them.
#include "entropy/huffman_encode_kernel.hpp"

#if defined(__x86_64__)
#include "entropy/huffman_encode_loop.hpp"

namespace bitsnap::entropy {

std::size_t huffman_encode_avx2(const HuffmanEncodeTable& table, const std::uint8_t* in, std::size_t size,
                                std::uint8_t* out) noexcept {
  BitWriter writer{.out = out};
  encode_plain(table, in, size, writer);
  return static_cast<std::size_t>(writer.finish() - out);
}

}  // namespace bitsnap::entropy
#endif
