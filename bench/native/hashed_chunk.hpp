// The two hashes of each chunk in a bitsnap file: of the decoded and of the stored bytes. Encoding computes both, and
// decoding checks both. Here they come before the payload and count towards its size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "base/try.hpp"

namespace bitsnap::bench {

inline constexpr std::size_t kHashBytes = 16;

// Precondition: the payload begins at out[kHashBytes].
inline std::size_t seal_chunk(ByteSpan out, std::uint64_t decoded_hash, std::size_t payload_bytes) noexcept {
  store_le<std::uint64_t>(out.data(), decoded_hash);
  store_le<std::uint64_t>(out.data() + 8, hash64(out.subspan(kHashBytes, payload_bytes)));
  return kHashBytes + payload_bytes;
}

[[nodiscard]] inline Result<ConstByteSpan> open_chunk(ConstByteSpan sealed) {
  const ConstByteSpan payload = sealed.subspan(kHashBytes);
  if (hash64(payload) != load_le<std::uint64_t>(sealed.data() + 8)) {
    return fail(ErrorKind::internal, "the hash of the stored bytes differs");
  }
  return payload;
}

[[nodiscard]] inline Result<void> check_decoded(ConstByteSpan sealed, ConstByteSpan decoded) {
  if (hash64(decoded) != load_le<std::uint64_t>(sealed.data())) {
    return fail(ErrorKind::internal, "the hash of the decoded bytes differs");
  }
  return {};
}

}  // namespace bitsnap::bench
