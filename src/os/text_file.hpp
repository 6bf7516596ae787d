// Reading the small text files in which the system describes itself (/proc, /sys). Of this floor only.
#pragma once

#include <optional>
#include <string>

namespace bitsnap::os {

// The file's text, at most a mebibyte of it; nothing if it cannot be read.
[[nodiscard]] std::optional<std::string> read_text_file(const std::string& path);

}  // namespace bitsnap::os
