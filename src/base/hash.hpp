// XXH3 checksums of chunks, headers, indexes and footers. They are no defence against forgery.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include "base/bytes.hpp"

namespace bitsnap {

[[nodiscard]] std::uint64_t hash64(ConstByteSpan bytes) noexcept;

struct Hash128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

// XXH3-128 of a sequence of pieces, equal to the hash of the joined pieces.
class Hasher128 {
 public:
  Hasher128();
  ~Hasher128() = default;
  Hasher128(const Hasher128&) = delete;
  Hasher128& operator=(const Hasher128&) = delete;

  void update(ConstByteSpan bytes) noexcept;
  [[nodiscard]] Hash128 digest() const noexcept;

 private:
  alignas(64) std::array<std::byte, 640> state_;
};

}  // namespace bitsnap
