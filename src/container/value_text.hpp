// What reading and writing a typed tree share: integers as text (small ones are JSON numbers, large ones strings), the
// names of types, and the keys of dicts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <bitsnap/value.hpp>

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

// nullopt if no key appears twice, or the error about one that does. Precondition: all of them may be keys.
[[nodiscard]] std::optional<std::string> find_repeated_key(const ValueDict& dict);

}  // namespace bitsnap::container
