// Numbers and names for people. Sizes and speeds are decimal: 1 MB = 10^6 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/text.hpp>

namespace bitsnap::cli {

// "0 B", "999 B", "66.4 MB", "4.29 GB": three significant digits.
[[nodiscard]] std::string format_size(std::uint64_t bytes);

// "1.506x", "13.81x", "1024x"; "-" if nothing is stored.
[[nodiscard]] std::string format_ratio(std::uint64_t raw_bytes, std::uint64_t stored_bytes);
[[nodiscard]] std::string format_ratio(double ratio);

// "1.24 GB/s", "87.3 MB/s".
[[nodiscard]] std::string format_speed(std::uint64_t bytes, double seconds);

// "12,345,678".
[[nodiscard]] std::string format_count(std::uint64_t count);

// "[512, 128]"; "[]" for a scalar.
[[nodiscard]] std::string format_shape(const std::vector<std::uint64_t>& shape);

// "37.4 %"; never "0.0 %" for a part above 0, nor "100.0 %" for less than the whole.
[[nodiscard]] std::string format_share(std::uint64_t part, std::uint64_t whole);
// `sign` is empty if a heading has it.
[[nodiscard]] std::string format_share(double share, std::string_view sign = " %");

// "2026-07-14 20:29:56", in the time zone of the user, and "2026-07-14T20:29:56.123Z". Times outside the years 1 to
// 9999 give "-".
[[nodiscard]] std::string format_local_time(std::int64_t unix_ms);
[[nodiscard]] std::string format_utc_time(std::int64_t unix_ms);

// "1 tensor", "2 tensors".
[[nodiscard]] std::string format_plural(std::uint64_t count, std::string_view noun);

// Width on a terminal: the number of code points.
[[nodiscard]] std::size_t display_width(std::string_view text) noexcept;

// At most `width` columns, with "..." in place of the middle or of the end.
[[nodiscard]] std::string elide_middle(std::string_view text, std::size_t width);
[[nodiscard]] std::string elide_end(std::string_view text, std::size_t width);

}  // namespace bitsnap::cli
