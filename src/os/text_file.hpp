// Reading the small text files in which the system describes itself (/proc, /sys). Of this floor only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bitsnap::os {

// The file's text, at most a mebibyte of it; nothing if it cannot be read.
[[nodiscard]] std::optional<std::string> read_text_file(const std::string& path);

// What a line of such a text gives in kibibytes, in bytes: "VmRSS:\t    1234 kB" for "VmRSS".
[[nodiscard]] std::optional<std::uint64_t> field_bytes(std::string_view text, std::string_view field);

}  // namespace bitsnap::os
