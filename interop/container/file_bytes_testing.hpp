// Bytes in memory as the bytes of a file.
#pragma once

#include <algorithm>

#include "interop/container/file_bytes.hpp"

namespace bitsnap::interop {

// `bytes` must outlive the result.
[[nodiscard]] inline FileBytes bytes_in_memory(ConstByteSpan bytes) {
  return {bytes.size(), [bytes](std::uint64_t offset, ByteSpan out) -> Result<void> {
            std::ranges::copy(bytes.subspan(static_cast<std::size_t>(offset), out.size()), out.begin());
            return {};
          }};
}

}  // namespace bitsnap::interop
