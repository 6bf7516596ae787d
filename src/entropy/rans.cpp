// Parses a table of the lane coder: docs/spec/rans.md, "Tables".
#include "entropy/rans.hpp"

#include <string>

namespace bitsnap::entropy {

Result<std::size_t> read_rans_table(ConstByteSpan bytes, RansTable& table) {
  ByteCursor cursor(bytes);
  BITSNAP_ASSIGN(const std::uint8_t count, cursor.read<std::uint8_t>("number of symbols"));
  if (count == 0 || count > kRansMaxSymbols) {
    return fail(ErrorKind::corrupt,
                "table has " + std::to_string(count) + " symbols, expected 1 to " + std::to_string(kRansMaxSymbols));
  }
  BITSNAP_ASSIGN(const ConstByteSpan symbols, cursor.take(count, "symbols"));
  BITSNAP_ASSIGN(const ConstByteSpan frequencies, cursor.take(count, "frequencies"));
  table.count = count;
  std::array<bool, 256> listed{};
  unsigned sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto symbol = std::to_integer<std::uint8_t>(symbols[i]);
    if (listed[symbol]) return fail(ErrorKind::corrupt, "table lists symbol " + std::to_string(symbol) + " twice");
    listed[symbol] = true;
    table.symbols[i] = symbol;
    const unsigned frequency = std::to_integer<unsigned>(frequencies[i]);
    if (frequency == 0 && count > 1) {
      return fail(ErrorKind::corrupt, "symbol " + std::to_string(symbol) + " has the frequency 0 in a table of " +
                                          std::to_string(count) + " symbols");
    }
    // A byte cannot hold the frequency 256 of a single symbol.
    table.frequencies[i] = static_cast<std::uint16_t>(frequency == 0 ? kRansScale : frequency);
    sum += table.frequencies[i];
  }
  if (sum > kRansScale) {
    return fail(ErrorKind::corrupt, "frequencies of the table sum to " + std::to_string(sum) + ", expected at most " +
                                        std::to_string(kRansScale));
  }
  table.escape = kRansScale - sum;
  return cursor.offset();
}

}  // namespace bitsnap::entropy
