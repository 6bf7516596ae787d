// Pieces of text that the JSON of an index is made of: strings, numbers, hexadecimal, base64. No state, no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bitsnap::container {

// Whether the text is UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
[[nodiscard]] bool is_utf8(std::string_view text) noexcept;

// Appends a JSON string with its quotes. Precondition: is_utf8(text). Escapes only what JSON demands.
void append_json_string(std::string& to, std::string_view text);

void append_decimal(std::string& to, std::uint64_t number);
void append_decimal(std::string& to, std::int64_t number);

// Digits enough to give back the same double, always with a fraction or an exponent. Precondition: finite.
void append_double(std::string& to, double number);

// 16 lower-case hexadecimal digits.
void append_hex(std::string& to, std::uint64_t number);
// nullopt unless the text is 16 lower-case hexadecimal digits.
[[nodiscard]] std::optional<std::uint64_t> parse_hex(std::string_view text) noexcept;

void append_base64(std::string& to, std::string_view bytes);
// nullopt unless the text is padded base64 with its unused bits zero.
[[nodiscard]] std::optional<std::string> parse_base64(std::string_view text);

// A name from a file for use in a message: in single quotes, what could disturb a terminal escaped, at most some 120
// bytes long.
[[nodiscard]] std::string quote_name(std::string_view name);

}  // namespace bitsnap::container
