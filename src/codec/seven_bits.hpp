// Packs bytes whose lowest bit is zero to seven bits each: docs/spec/codecs.md, "Plane groups".
//
// Kernels in plain 64-bit arithmetic, the same on every CPU; they allocate nothing and cannot fail. `packed` holds
// packed_bytes(count) bytes, `bytes` holds `count`; they must not overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bitsnap::codec {

[[nodiscard]] constexpr std::size_t packed_bytes(std::size_t count) noexcept { return count - count / 8; }

// The upper seven bits of each of eight bytes, joined in the lower 56 bits.
[[nodiscard]] constexpr std::uint64_t pack_seven_bits(std::uint64_t eight) noexcept {
  const std::uint64_t sevens = eight >> 1 & 0x7F7F7F7F7F7F7F7F;
  const std::uint64_t pairs = (sevens & 0x007F007F007F007F) | (sevens & 0x7F007F007F007F00) >> 1;
  const std::uint64_t fours = (pairs & 0x00003FFF00003FFF) | (pairs & 0x3FFF00003FFF0000) >> 2;
  return (fours & 0x000000000FFFFFFF) | (fours & 0x0FFFFFFF00000000) >> 4;
}

[[nodiscard]] constexpr std::uint64_t unpack_seven_bits(std::uint64_t packed) noexcept {
  const std::uint64_t fours = (packed & 0x000000000FFFFFFF) | (packed & 0x00FFFFFFF0000000) << 4;
  const std::uint64_t pairs = (fours & 0x00003FFF00003FFF) | (fours & 0x0FFFC0000FFFC000) << 2;
  const std::uint64_t sevens = (pairs & 0x007F007F007F007F) | (pairs & 0x3F803F803F803F80) << 1;
  return sevens << 1;
}

// Applies kTurn to eight bytes at a time, which are kFrom bytes in `from` and kTo bytes in `to`: 7 if packed,
// otherwise 8. Stores whole words while there is room after their used bytes, which is three times as fast as stores of
// seven bytes.
template <auto kTurn, std::size_t kFrom, std::size_t kTo>
inline void turn_plane(const std::byte* from, std::size_t count, std::byte* to) noexcept {
  for (; count >= 16; count -= 8, from += kFrom, to += kTo) {
    std::uint64_t eight;
    std::memcpy(&eight, from, 8);
    eight = kTurn(eight);
    std::memcpy(to, &eight, 8);
  }
  for (; count > 0; from += kFrom, to += kTo) {
    const std::size_t some = count < 8 ? count : 8;
    std::uint64_t eight = 0;
    std::memcpy(&eight, from, kFrom == 7 ? packed_bytes(some) : some);
    eight = kTurn(eight);
    std::memcpy(to, &eight, kTo == 7 ? packed_bytes(some) : some);
    count -= some;
  }
}

// Writes the padding bits as zero.
inline void pack_plane(const std::byte* bytes, std::size_t count, std::byte* packed) noexcept {
  turn_plane<pack_seven_bits, 8, 7>(bytes, count, packed);
}

inline void unpack_plane(const std::byte* packed, std::size_t count, std::byte* bytes) noexcept {
  turn_plane<unpack_seven_bits, 7, 8>(packed, count, bytes);
}

// Whether a padding bit after the last element is set.
[[nodiscard]] inline bool padding_is_set(const std::byte* packed, std::size_t count) noexcept {
  const std::size_t used_bits = 7 * count % 8;
  return used_bits != 0 && std::to_integer<unsigned>(packed[packed_bytes(count) - 1]) >> used_bits != 0;
}

}  // namespace bitsnap::codec
