// Length-limited Huffman codes by package-merge, and the table that states them.
#include "entropy/code_lengths_encode.hpp"

#include <limits>

namespace bitsnap::entropy {
namespace {

constexpr std::size_t kSymbols = 256;
constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max() / 2;  // the sum of two does not overflow
constexpr std::size_t kMaxGap = 4;  // gaps inside a range: each costs a nibble, a new range 2 bytes

struct Leaves {
  std::array<std::uint32_t, kSymbols + 1> keys;  // count << 8 | symbol, ascending, then kNever
  std::size_t count = 0;
};

}  // namespace

void choose_code_lengths(const Histogram& counts, CodeLengths& lengths) noexcept {
  Leaves leaves;
  for (std::size_t symbol = 0; symbol < kSymbols; ++symbol) {
    if (counts[symbol] != 0) leaves.keys[leaves.count++] = (counts[symbol] << 8) | static_cast<std::uint32_t>(symbol);
  }
  const std::size_t n = leaves.count;
  std::sort(leaves.keys.begin(), leaves.keys.begin() + static_cast<std::ptrdiff_t>(n));
  std::array<std::uint32_t, kSymbols + 1> weights;
  for (std::size_t i = 0; i < n; ++i) weights[i] = leaves.keys[i] >> 8;
  weights[n] = kNever;

  // The list of a level holds the leaves and the pairs of the level below, by weight; the first 2n - 2 items are
  // enough. packages[level][i] is the number of pairs among the first i items.
  const std::size_t needed = 2 * n - 2;
  std::array<std::array<std::uint32_t, 2 * kSymbols + 2>, 2> lists;
  std::array<std::array<std::uint16_t, 2 * kSymbols>, kMaxCodeBits> packages;
  std::size_t size = n;
  std::copy_n(weights.begin(), n, lists[0].begin());
  for (std::size_t level = 1; level < kMaxCodeBits; ++level) {
    std::array<std::uint32_t, 2 * kSymbols + 2>& below = lists[(level + 1) % 2];
    std::array<std::uint32_t, 2 * kSymbols + 2>& list = lists[level % 2];
    const std::size_t pairs = size / 2;
    below[2 * pairs] = below[2 * pairs + 1] = kNever;
    const std::size_t new_size = std::min(needed, n + pairs);
    std::size_t leaf = 0;
    std::size_t pair = 0;
    for (std::size_t i = 0; i < new_size; ++i) {
      packages[level][i] = static_cast<std::uint16_t>(pair);
      const std::uint32_t leaf_weight = weights[leaf];
      const std::uint32_t pair_weight = std::min(below[2 * pair] + below[2 * pair + 1], kNever);
      const bool take_pair = pair_weight < leaf_weight;
      list[i] = take_pair ? pair_weight : leaf_weight;
      pair += take_pair ? 1 : 0;
      leaf += take_pair ? 0 : 1;
    }
    packages[level][new_size] = static_cast<std::uint16_t>(pair);
    size = new_size;
  }

  // Each leaf among the items taken at a level adds one bit to its code.
  std::array<std::uint8_t, kSymbols> bits{};
  std::size_t taken = needed;
  for (std::size_t level = kMaxCodeBits; level-- > 0;) {
    const std::size_t pairs = level == 0 ? 0 : packages[level][taken];
    for (std::size_t leaf = 0; leaf < taken - pairs; ++leaf) ++bits[leaf];
    taken = 2 * pairs;
  }
  lengths.fill(0);
  for (std::size_t i = 0; i < n; ++i) lengths[leaves.keys[i] & 255U] = bits[i];
}

std::size_t write_code_lengths(const CodeLengths& lengths, std::byte* out) noexcept {
  std::array<std::uint8_t, kSymbols> nibbles{};
  std::size_t listed = 0;
  std::size_t ranges = 0;
  std::size_t last = 0;
  for (std::size_t symbol = 0; symbol < kSymbols; ++symbol) {
    if (lengths[symbol] == 0) continue;
    if (ranges == 0 || symbol - last - 1 > kMaxGap) {
      out[1 + 2 * ranges] = static_cast<std::byte>(symbol);
      ++ranges;
    } else {
      listed += symbol - last - 1;
    }
    out[2 * ranges] = static_cast<std::byte>(symbol);
    nibbles[listed++] = lengths[symbol];
    last = symbol;
  }
  out[0] = static_cast<std::byte>(ranges);
  std::byte* const packed = out + 1 + 2 * ranges;
  for (std::size_t i = 0; i < listed; i += 2) {
    const unsigned high = i + 1 < listed ? nibbles[i + 1] : 0U;
    packed[i / 2] = static_cast<std::byte>(nibbles[i] | (high << 4));
  }
  return 1 + 2 * ranges + (listed + 1) / 2;
}

}  // namespace bitsnap::entropy
