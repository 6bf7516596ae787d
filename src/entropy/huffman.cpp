// Parsing of the table of code lengths: docs/spec/entropy.md, "Table of code lengths".
#include "entropy/huffman.hpp"

#include <string>

namespace bitsnap::entropy {

Result<std::size_t> read_code_lengths(ConstByteSpan bytes, CodeLengths& lengths) {
  ByteCursor cursor(bytes);
  BITSNAP_ASSIGN(const std::uint8_t ranges, cursor.read<std::uint8_t>("number of symbol ranges"));
  if (ranges == 0) return fail(ErrorKind::corrupt, "table of code lengths has no range");
  BITSNAP_ASSIGN(const ConstByteSpan bounds, cursor.take(std::uint64_t{ranges} * 2, "symbol ranges"));
  std::size_t listed = 0;
  int previous_last = -1;
  for (std::size_t range = 0; range < ranges; ++range) {
    const int first = std::to_integer<int>(bounds[2 * range]);
    const int last = std::to_integer<int>(bounds[2 * range + 1]);
    if (first <= previous_last || last < first) {
      return fail(ErrorKind::corrupt, "symbol range " + std::to_string(range) + " of the table of code lengths is " +
                                          std::to_string(first) + ".." + std::to_string(last) + " after symbol " +
                                          std::to_string(previous_last));
    }
    previous_last = last;
    listed += static_cast<std::size_t>(last - first + 1);
  }
  BITSNAP_ASSIGN(const ConstByteSpan nibbles, cursor.take((listed + 1) / 2, "code lengths"));

  lengths.fill(0);
  std::size_t nibble = 0;
  unsigned kraft = 0;  // in units of the longest code; complete is 2^kMaxCodeBits
  const auto next_nibble = [&] {
    const unsigned byte = std::to_integer<unsigned>(nibbles[nibble / 2]);
    return nibble++ % 2 == 0 ? byte & 15U : byte >> 4U;
  };
  for (std::size_t range = 0; range < ranges; ++range) {
    const std::size_t last = std::to_integer<std::size_t>(bounds[2 * range + 1]);
    for (std::size_t symbol = std::to_integer<std::size_t>(bounds[2 * range]); symbol <= last; ++symbol) {
      const unsigned length = next_nibble();
      if (length > kMaxCodeBits) {
        return fail(ErrorKind::corrupt, "code of symbol " + std::to_string(symbol) + " has " + std::to_string(length) +
                                            " bits, expected at most " + std::to_string(kMaxCodeBits));
      }
      lengths[symbol] = static_cast<std::uint8_t>(length);
      if (length != 0) kraft += 1U << (kMaxCodeBits - length);
    }
  }
  if (listed % 2 != 0 && next_nibble() != 0) {
    return fail(ErrorKind::corrupt, "unused half of the last code length is not zero");
  }
  if (kraft != 1U << kMaxCodeBits) {
    return fail(ErrorKind::corrupt, "code lengths are not a complete prefix code: they fill " + std::to_string(kraft) +
                                        " of " + std::to_string(1U << kMaxCodeBits) + " codes");
  }
  return cursor.offset();
}

}  // namespace bitsnap::entropy
