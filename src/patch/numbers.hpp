// Numbers of seven bits a byte, the lowest first: docs/spec/patch.md.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "codec/payload_checks.hpp"

namespace bitsnap::patch {

inline void put_number(std::vector<std::byte>& to, std::uint64_t number) {
  for (; number >= 128; number >>= 7) to.push_back(static_cast<std::byte>(number | 128));
  to.push_back(static_cast<std::byte>(number));
}

// corrupt for a number of more bytes than it needs, or of more than `most_bytes`, which are at most nine.
[[nodiscard]] inline Result<std::uint64_t> read_number(ByteCursor& cursor, unsigned most_bytes, std::string_view what) {
  std::uint64_t number = 0;
  for (unsigned i = 0; i < most_bytes; ++i) {
    BITSNAP_ASSIGN(const auto byte, cursor.read<std::uint8_t>(what));
    number |= std::uint64_t{byte & 127U} << (7 * i);
    if (byte >= 128) continue;
    if (byte == 0 && i > 0) return codec::corrupt("{} has a superfluous byte", what);
    return number;
  }
  return codec::corrupt("{} has more than {} bits", what, 7 * most_bytes);
}

}  // namespace bitsnap::patch
