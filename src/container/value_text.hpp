// What reading and writing of a typed tree have in common: integers as text, and the limit between the two ways to
// write one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace bitsnap::container {

// Integers up to this magnitude, 2^53 - 1, are JSON numbers: every JSON reader keeps them exact.
inline constexpr std::uint64_t kMaxPlainInteger = (std::uint64_t{1} << 53) - 1;

[[nodiscard]] bool is_plain_integer(std::int64_t number) noexcept;

// Digits with an optional minus; no leading zeros, no "-0".
[[nodiscard]] bool is_decimal(std::string_view text) noexcept;

// Precondition: is_decimal(text). nullopt where 64 bits do not hold it.
[[nodiscard]] std::optional<std::int64_t> to_int64(std::string_view text) noexcept;

}  // namespace bitsnap::container
