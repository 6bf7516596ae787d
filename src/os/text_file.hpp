// Reads the small text files of /proc and /sys. Used by src/os only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bitsnap::os {

// The first mebibyte of the file; nullopt if it cannot be read.
[[nodiscard]] std::optional<std::string> read_text_file(const std::string& path);

// A field of such a text in bytes, which the text gives in kibibytes: "VmRSS:\t    1234 kB" for "VmRSS".
[[nodiscard]] std::optional<std::uint64_t> field_bytes(std::string_view text, std::string_view field);

}  // namespace bitsnap::os
