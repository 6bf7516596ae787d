// What reading and writing a typed tree share: integers as text (small ones are JSON numbers, large ones strings), and
// the names of types.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace bitsnap::container {

// Integers up to this magnitude, 2^53 - 1, are JSON numbers, because every JSON reader keeps them exact.
inline constexpr std::uint64_t kMaxPlainInteger = (std::uint64_t{1} << 53) - 1;

[[nodiscard]] bool is_plain_integer(std::int64_t number) noexcept;

// Digits with an optional minus; no leading zeros, no "-0".
[[nodiscard]] bool is_decimal(std::string_view text) noexcept;

// 1 to 64 of the characters A-Z a-z 0-9 _ and '.'.
[[nodiscard]] bool is_type_name(std::string_view text) noexcept;

// Precondition: is_decimal(text). nullopt if the number does not fit in 64 bits.
[[nodiscard]] std::optional<std::int64_t> to_int64(std::string_view text) noexcept;

}  // namespace bitsnap::container
