// Bytes as one zstd frame, as sections of an index are: docs/spec/snapshot.md, "Index". Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"

namespace bitsnap::container {

// Empty if the frame would not be smaller. resource_exhausted without memory.
[[nodiscard]] Result<std::vector<std::byte>> pack_bytes(ConstByteSpan raw, int level);

// corrupt if no frame of `stored_bytes` can unpack to `raw_bytes`. Callers check this and a limit before they unpack.
[[nodiscard]] Result<void> check_packed_size(std::uint64_t stored_bytes, std::uint64_t raw_bytes);

// corrupt unless the bytes are exactly one frame of exactly `raw_bytes`.
[[nodiscard]] Result<std::vector<std::byte>> unpack_bytes(ConstByteSpan stored, std::uint64_t raw_bytes);

}  // namespace bitsnap::container
