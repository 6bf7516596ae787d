// The two hashes that bitsnap keeps of each chunk, for engines that are bitsnap's own: of what decoding returns, which
// a writer takes once and every read checks, and of what is stored, the same. They stand before the payload and count.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "base/try.hpp"

namespace bitsnap::bench {

inline constexpr std::size_t kHashBytes = 16;

// Once the payload stands behind the hashes.
inline std::size_t seal_chunk(ByteSpan out, std::uint64_t decoded_hash, std::size_t payload_bytes) noexcept {
  store_le<std::uint64_t>(out.data(), decoded_hash);
  store_le<std::uint64_t>(out.data() + 8, hash64(out.subspan(kHashBytes, payload_bytes)));
  return kHashBytes + payload_bytes;
}

[[nodiscard]] inline Result<ConstByteSpan> open_chunk(ConstByteSpan sealed) {
  const ConstByteSpan payload = sealed.subspan(kHashBytes);
  if (hash64(payload) != load_le<std::uint64_t>(sealed.data() + 8)) {
    return fail(ErrorKind::internal, "the stored bytes have another hash");
  }
  return payload;
}

[[nodiscard]] inline Result<void> check_decoded(ConstByteSpan sealed, ConstByteSpan decoded) {
  if (hash64(decoded) != load_le<std::uint64_t>(sealed.data())) {
    return fail(ErrorKind::internal, "the decoded bytes have another hash");
  }
  return {};
}

}  // namespace bitsnap::bench
