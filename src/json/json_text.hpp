// JSON strings, numbers, hexadecimal and base64 as text. No state, no I/O; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bitsnap::json {

// How many characters at the beginning of the text are printable ASCII other than '"' and '\\', as most in JSON
// strings.
[[nodiscard]] std::size_t plain_characters(std::string_view text) noexcept;

// Files differ in how they write backspace and form feed, and their bytes never change.
enum class JsonEscapes : std::uint8_t {
  without_b_and_f,  // \u0008 and \u000c: the index of a snapshot
  all_short,        // \b and \f: records, messages, safetensors headers
};

// Appends a JSON string with its quotes; escapes only what JSON requires. Bytes that are not UTF-8 stay as they are.
void append_json_string(std::string& to, std::string_view text, JsonEscapes escapes = JsonEscapes::without_b_and_f);

// The shortest digits that parse to the same double, always with a fraction or an exponent. Precondition: finite.
void append_double(std::string& to, double number);

// nullopt unless the text is 16 lower-case hexadecimal digits.
[[nodiscard]] std::optional<std::uint64_t> parse_hex(std::string_view text) noexcept;

// Padded.
[[nodiscard]] std::string to_base64(std::string_view bytes);
// nullopt unless the text is padded base64 with its unused bits zero.
[[nodiscard]] std::optional<std::string> parse_base64(std::string_view text);

}  // namespace bitsnap::json
