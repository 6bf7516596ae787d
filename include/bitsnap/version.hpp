// The version of the library, and of the snapshot format that it writes.
#pragma once

#include <cstdint>
#include <string_view>

namespace bitsnap {

[[nodiscard]] std::string_view version() noexcept;  // "0.1.0"

// Format 0 is not stable: it may change with any release.
inline constexpr std::uint32_t kFormatVersion = 0;

}  // namespace bitsnap
