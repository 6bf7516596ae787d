// CRC-32 as ZIP, gzip and PNG use it: the reflected polynomial 0xEDB88320. A pure function; any thread.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"

namespace bitsnap::interop {

// Of the bytes whose checksum is `before`, followed by `bytes`. The checksum of no bytes is 0.
[[nodiscard]] std::uint32_t crc32(ConstByteSpan bytes, std::uint32_t before = 0) noexcept;

}  // namespace bitsnap::interop
